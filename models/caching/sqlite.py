"""Keeps entries in a SQLite file."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from rejoinder.models.caching.store import CacheLimits, Stats
from rejoinder.pipeline.errors import ModelError

Result = TypeVar("Result")

SQLITE_SCHEMA = """
CREATE TABLE IF NOT EXISTS answers
    (key TEXT PRIMARY KEY, expires REAL NOT NULL, size INTEGER NOT NULL, body BLOB NOT NULL);
CREATE INDEX IF NOT EXISTS answers_expires ON answers (expires, size);
"""
"""The table of entries. Readers find the size of all in the index."""
CLOCKS_APART_S = 3600.0
"""Most seconds between the clocks of processes that share a file. An entry that expires later than any such
process would let it was stored by a clock that was wrong, and is not used."""
SQLITE_BUSY_S = 2.0
"""Longest wait for another process that writes, in seconds."""


class SqliteStore:
    """Entries in one file, which several processes may share. Raises ModelError if it cannot be opened.

    now: returns seconds since the epoch. Readers and the writer have a thread and a connection each: in
    SQLite's write-ahead mode, readers do not wait for the writer (sqlite.org/wal.html).
    """

    def __init__(self, path: Path, limits: CacheLimits, now: Callable[[], float]) -> None:
        self._limits = limits
        self._now = now
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Words of callers: only the server's own user reads them. SQLite gives its other files this mode.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))
            self._reader, self._writer = self._open(path), self._open(path)
            self._writer.executescript(SQLITE_SCHEMA)
            self._writer.execute("DELETE FROM answers WHERE expires <= ?", (now(),))
        except (OSError, sqlite3.Error) as error:
            raise ModelError("cache", f"cannot open {path}: {error}") from error
        self._reading = ThreadPoolExecutor(1, "cache-read")
        self._writing = ThreadPoolExecutor(1, "cache-write")

    def _open(self, path: Path) -> sqlite3.Connection:
        connection = sqlite3.connect(path, SQLITE_BUSY_S, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA secure_delete = ON")  # what is deleted is gone from the file, too
        connection.execute(f"PRAGMA journal_size_limit = {2**22}")
        return connection

    async def get(self, key: str) -> bytes | None:
        """Return an entry, None for none. Raises sqlite3.Error. Cancelling stops the wait only."""
        return await self._run(self._reading, lambda: self._get(key))

    async def put(self, key: str, body: bytes) -> None:
        """Store an entry, and delete what is over the limits. Raises sqlite3.Error.

        Cancelling stops the wait only.
        """
        await self._run(self._writing, lambda: self._put(key, body))

    async def stats(self) -> Stats:
        """Count the entries that have not expired. Raises sqlite3.Error. Cancelling stops the wait only."""
        return await self._run(self._reading, self._stats)

    async def purge(self) -> int:
        """Delete all entries, and return how many there were. Raises sqlite3.Error.

        Cancelling stops the wait only.
        """
        return await self._run(self._writing, self._purge)

    async def aclose(self) -> None:
        """Close the file, after what was begun. Cancelling stops the wait only."""
        await self._run(self._reading, self._reader.close)
        await self._run(self._writing, self._writer.close)
        self._reading.shutdown()
        self._writing.shutdown()

    async def _run(self, thread: ThreadPoolExecutor, work: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(thread, work)

    def _get(self, key: str) -> bytes | None:
        wanted = "SELECT body FROM answers WHERE key = ? AND expires > ? AND expires <= ?"
        now = self._now()
        latest = now + self._limits.ttl_s + CLOCKS_APART_S
        row = self._reader.execute(wanted, (key, now, latest)).fetchone()
        return bytes(row[0]) if row else None

    def _put(self, key: str, body: bytes) -> None:
        now, run = self._now(), self._writer.execute
        run("BEGIN IMMEDIATE")
        try:
            row = (key, now + self._limits.ttl_s, len(body), body)
            run("INSERT OR REPLACE INTO answers VALUES (?, ?, ?, ?)", row)
            run("DELETE FROM answers WHERE expires <= ?", (now,))
            entries, size = run("SELECT count(*), total(size) FROM answers").fetchone()
            while entries > self._limits.entries or size > self._limits.bytes:
                oldest = run("SELECT key, size FROM answers ORDER BY expires LIMIT 1").fetchone()
                run("DELETE FROM answers WHERE key = ?", (oldest[0],))
                entries, size = entries - 1, size - oldest[1]
            run("COMMIT")
        finally:
            if self._writer.in_transaction:  # a full disk has ended it already
                run("ROLLBACK")

    def _stats(self) -> Stats:
        wanted = "SELECT count(*), total(size) FROM answers WHERE expires > ?"
        entries, size = self._reader.execute(wanted, (self._now(),)).fetchone()
        return Stats(entries, int(size))

    def _purge(self) -> int:
        deleted = self._writer.execute("DELETE FROM answers").rowcount
        self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return deleted
