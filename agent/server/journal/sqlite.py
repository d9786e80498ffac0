"""Keeps conversations in a SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path

from rejoinder.agent.server.journal.store import JournalLimits, Save, Saved, WriteRefusal
from rejoinder.models.sqlite_file import SqliteFile
from rejoinder.pipeline.errors import ModelError

JOURNAL_SCHEMA = """
CREATE TABLE IF NOT EXISTS conversations
    (key TEXT PRIMARY KEY, generation INTEGER NOT NULL, seen REAL NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS parts
    (key TEXT NOT NULL, name TEXT NOT NULL, body BLOB NOT NULL, size INTEGER NOT NULL,
     PRIMARY KEY (key, name));
CREATE INDEX IF NOT EXISTS conversations_seen ON conversations (seen);
CREATE INDEX IF NOT EXISTS parts_size ON parts (key, size);
"""
"""The tables. The position of a reply changes five times in a second, so it is a row of its own."""
JOURNAL_VERSION = 1
"""The version of the tables (PRAGMA user_version). Raise it when they change."""
FILE_ANSWER_S = 3.0
"""Longest wait for the file, in seconds: a disk may hang, and so may a network's file system."""


class SqliteConversations:
    """Conversations in one file, which several processes of one machine may share.

    now: returns seconds since the epoch. Raises ModelError if the file cannot be opened. A commit is in the
    operating system's cache, which outlives this process, and is not waited for on the disk: SQLite's
    ``synchronous = NORMAL`` in write-ahead mode (sqlite.org/pragma.html#pragma_synchronous). All methods
    raise TimeoutError after ``FILE_ANSWER_S``, and at once until the file answers again.
    """

    def __init__(self, path: Path, limits: JournalLimits, now: Callable[[], float]) -> None:
        self._limits = limits
        self._now = now

        def check(writer: sqlite3.Connection) -> None:
            (version,) = writer.execute("PRAGMA user_version").fetchone()
            if version not in (0, JOURNAL_VERSION):
                reason = f"{path} is of version {version}, and this program reads {JOURNAL_VERSION}"
                raise ModelError("conversations", f"{reason}: delete it, or name another file")

        try:
            self._file = SqliteFile(path, JOURNAL_SCHEMA, "conversations", check, FILE_ANSWER_S)
            self._file.writer.execute(f"PRAGMA user_version = {JOURNAL_VERSION}")
        except (OSError, sqlite3.Error) as error:
            raise ModelError("conversations", f"cannot open {path}: {error}") from error

    async def save(self, saves: Sequence[Save]) -> dict[str, WriteRefusal]:
        """Write all in one transaction; see ``ConversationStore``. Cancelling stops the wait only."""
        refused: dict[str, WriteRefusal] = {}

        def work() -> None:
            refused.clear()
            self._save(saves, refused)

        await self._file.write(lambda: self._file.in_transaction(work))
        return refused

    async def find(self, key: str) -> Saved | None:
        """Return a conversation; see ``ConversationStore``. Cancelling stops the wait only."""
        wanted = (
            "SELECT generation, name, body FROM conversations JOIN parts USING (key) "
            "WHERE key = ? AND seen >= ?"
        )

        def work() -> list[tuple[int, str, bytes]]:
            return self._file.reader.execute(wanted, (key, self._oldest(self._now()))).fetchall()

        rows = await self._file.read(work)
        return Saved(rows[0][0], {name: bytes(body) for _, name, body in rows}) if rows else None

    async def claim(self, key: str, generation: int) -> int | None:
        """Become the owner of a conversation; see ``ConversationStore``. Cancelling stops the wait only."""
        claim = "UPDATE conversations SET generation = ?, seen = ? WHERE key = ? AND generation = ?"

        def work() -> int:
            return self._file.writer.execute(claim, (generation + 1, self._now(), key, generation)).rowcount

        return generation + 1 if await self._file.write(work) else None

    async def drop(self, key: str, generation: int) -> None:
        """Delete a conversation that has ended. Cancelling stops the wait only."""
        wanted = "SELECT 1 FROM conversations WHERE key = ? AND generation = ?"

        def work() -> None:
            if self._file.writer.execute(wanted, (key, generation)).fetchone():
                self._delete(key)

        await self._file.write(lambda: self._file.in_transaction(work))

    async def aclose(self) -> None:
        """Close the file, after what was begun. Cancelling stops the wait only."""
        await self._file.aclose()

    def _save(self, saves: Sequence[Save], refused: dict[str, WriteRefusal]) -> None:
        run, now, full = self._file.writer.execute, self._now(), False
        for one in saves:
            row = run("SELECT generation FROM conversations WHERE key = ?", (one.key,)).fetchone()
            if row is None and not one.new:
                refused[one.key] = WriteRefusal.DROPPED
                continue
            if row is not None and row[0] != one.generation:
                refused[one.key] = WriteRefusal.TAKEN
                continue
            run("REPLACE INTO conversations VALUES (?, ?, ?)", (one.key, one.generation, now))
            full = full or one.new or not one.parts
            for name, body in one.parts.items():
                run("REPLACE INTO parts VALUES (?, ?, ?, ?)", (one.key, name, body, len(body)))
        if full:  # with each new one, and whenever a server says that it is alive
            self._delete_excess(now)

    def _delete_excess(self, now: float) -> None:
        run, oldest = self._file.writer.execute, (self._oldest(now),)
        keys = [row[0] for row in run("SELECT key FROM conversations WHERE seen < ?", oldest)]
        count = run("SELECT count(*) FROM conversations").fetchone()[0] - len(keys)
        size = run("SELECT total(size) FROM parts").fetchone()[0]
        for (key,) in run("SELECT key FROM conversations WHERE seen >= ? ORDER BY seen", oldest).fetchall():
            if count <= self._limits.conversations and size <= self._limits.bytes:
                break
            size -= run("SELECT total(size) FROM parts WHERE key = ?", (key,)).fetchone()[0]
            count -= 1
            keys.append(key)
        for key in keys:
            self._delete(key)

    def _oldest(self, now: float) -> float:
        return now - self._limits.keep_s

    def _delete(self, key: str) -> None:
        self._file.writer.execute("DELETE FROM conversations WHERE key = ?", (key,))
        self._file.writer.execute("DELETE FROM parts WHERE key = ?", (key,))
