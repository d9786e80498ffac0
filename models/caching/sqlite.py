"""Keeps entries in a SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from rejoinder.models.caching.store import CacheLimits, Stats
from rejoinder.models.sqlite_file import SqliteFile
from rejoinder.pipeline.errors import ModelError

SQLITE_SCHEMA = """
CREATE TABLE IF NOT EXISTS answers
    (key TEXT PRIMARY KEY, expires REAL NOT NULL, size INTEGER NOT NULL, body BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS answers_expires ON answers (expires, size);
"""
"""The table of entries. Readers find the size of all in the index."""
CLOCKS_APART_S = 3600.0
"""Most seconds between the clocks of processes that share a file. An entry that expires later than any such
process would let it was stored by a clock that was wrong, and is not used."""


class SqliteStore:
    """Entries in one file, which several processes may share. Raises ModelError if it cannot be opened.

    now: returns seconds since the epoch.
    """

    def __init__(self, path: Path, limits: CacheLimits, now: Callable[[], float]) -> None:
        self._limits = limits
        self._now = now
        try:
            self._file = SqliteFile(path, SQLITE_SCHEMA, "cache")
            with suppress(sqlite3.OperationalError):  # another process writes: the next answer deletes them
                self._file.writer.execute("DELETE FROM answers WHERE expires <= ?", (now(),))
        except (OSError, sqlite3.Error) as error:
            raise ModelError("cache", f"cannot open {path}: {error}") from error

    async def get(self, key: str) -> bytes | None:
        """Return an entry, None for none. Raises sqlite3.Error. Cancelling stops the wait only."""
        return await self._file.read(lambda: self._get(key))

    async def put(self, key: str, body: bytes) -> None:
        """Store an entry, and delete what is over the limits. Raises sqlite3.Error.

        Cancelling stops the wait only.
        """
        await self._file.write(lambda: self._put(key, body))

    async def stats(self) -> Stats:
        """Count the entries that have not expired. Raises sqlite3.Error. Cancelling stops the wait only."""
        return await self._file.read(self._stats)

    async def purge(self) -> int:
        """Delete all entries, and return how many there were. Raises sqlite3.Error.

        Cancelling stops the wait only.
        """
        return await self._file.write(self._purge)

    async def aclose(self) -> None:
        """Close the file, after what was begun. Cancelling stops the wait only."""
        await self._file.aclose()

    def _get(self, key: str) -> bytes | None:
        wanted = "SELECT body FROM answers WHERE key = ? AND expires > ? AND expires <= ?"
        now = self._now()
        latest = now + self._limits.ttl_s + CLOCKS_APART_S
        row = self._file.reader.execute(wanted, (key, now, latest)).fetchone()
        return bytes(row[0]) if row else None

    def _put(self, key: str, body: bytes) -> None:
        now, run = self._now(), self._file.writer.execute

        def put() -> None:
            row = (key, now + self._limits.ttl_s, len(body), body)
            run("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)", row)
            run("DELETE FROM answers WHERE expires <= ?", (now,))
            entries, size = run("SELECT count(*), total(size) FROM answers").fetchone()
            while entries > self._limits.entries or size > self._limits.bytes:
                oldest = run("SELECT key, size FROM answers ORDER BY expires LIMIT 1").fetchone()
                run("DELETE FROM answers WHERE key = ?", (oldest[0],))
                entries, size = entries - 1, size - oldest[1]

        self._file.in_transaction(put)

    def _stats(self) -> Stats:
        wanted = "SELECT count(*), total(size) FROM answers WHERE expires > ?"
        entries, size = self._file.reader.execute(wanted, (self._now(),)).fetchone()
        return Stats(entries, int(size))

    def _purge(self) -> int:
        deleted = self._file.writer.execute("DELETE FROM answers").rowcount
        self._file.writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return deleted
