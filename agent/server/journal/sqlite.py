"""Keeps conversations in a SQLite file."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rejoinder.agent.server.journal.file_thread import FileThread
from rejoinder.agent.server.journal.store import JournalLimits, Save, Saved, WriteRefusal
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
JOURNAL_FORM = 1
"""The form of the tables, which SQLite keeps as ``user_version``."""
JOURNAL_BUSY_S = 2.0
"""Longest wait for another process that writes, in seconds."""
FILE_ANSWER_S = 3.0
"""Longest wait for the file, in seconds: a disk may hang, and so may a network's file system."""
OWNER_ONLY = 0o600
"""The mode of the file: it holds what callers said."""


class SqliteConversations:
    """Conversations in one file, which several processes of one machine may share.

    now: returns seconds since the epoch. Raises ModelError if it cannot be opened. A commit is in the
    operating system's cache, which outlives this process, and is not waited for on the disk: SQLite's
    ``synchronous = NORMAL`` in write-ahead mode (sqlite.org/pragma.html#pragma_synchronous). One thread
    reads and writes. All methods raise TimeoutError after ``FILE_ANSWER_S``, and at once until the file
    answers again.
    """

    def __init__(self, path: Path, limits: JournalLimits, now: Callable[[], float]) -> None:
        self._limits = limits
        self._now = now
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            os.close(os.open(path, os.O_CREAT | os.O_RDWR, OWNER_ONLY))  # SQLite gives -wal the same mode
            path.chmod(OWNER_ONLY)
            self._file = sqlite3.connect(path, JOURNAL_BUSY_S, isolation_level=None, check_same_thread=False)
            self._file.execute("PRAGMA journal_mode = WAL")
            self._file.execute("PRAGMA synchronous = NORMAL")
            self._file.execute("PRAGMA secure_delete = ON")  # what has ended is not left in the file
            form = self._file.execute("PRAGMA user_version").fetchone()[0]
            if form not in (0, JOURNAL_FORM):
                reason = f"{path} has form {form}, and this version reads form {JOURNAL_FORM}: delete it"
                raise ModelError("conversations", reason)
            self._file.executescript(JOURNAL_SCHEMA)
            self._file.execute(f"PRAGMA user_version = {JOURNAL_FORM}")
        except (OSError, sqlite3.Error) as error:
            raise ModelError("conversations", f"cannot open {path}: {error}") from error
        self._thread = FileThread("conversations", FILE_ANSWER_S)

    async def save(self, saves: Sequence[Save]) -> dict[str, WriteRefusal]:
        """Write all in one transaction; see ``ConversationStore``. Cancelling stops the wait only."""
        return await self._thread.run(lambda: self._save(saves))

    async def find(self, key: str) -> Saved | None:
        """Return a conversation; see ``ConversationStore``. Cancelling stops the wait only."""
        return await self._thread.run(lambda: self._find(key))

    async def claim(self, key: str, generation: int) -> int | None:
        """Become the owner of a conversation; see ``ConversationStore``. Cancelling stops the wait only."""
        return await self._thread.run(lambda: self._claim(key, generation))

    async def drop(self, key: str, generation: int) -> None:
        """Delete a conversation that has ended. Cancelling stops the wait only."""
        await self._thread.run(lambda: self._drop(key, generation))

    async def aclose(self) -> None:
        """Close the file, after what was begun. Cancelling stops the wait only."""
        try:
            await self._thread.run(self._file.close)
        finally:
            self._thread.close()

    @contextmanager
    def _transaction(self, kind: str = "IMMEDIATE") -> Iterator[Callable[..., sqlite3.Cursor]]:
        self._file.execute(f"BEGIN {kind}")
        try:
            yield self._file.execute
            self._file.execute("COMMIT")
        except BaseException:
            self._file.execute("ROLLBACK")
            raise

    def _save(self, saves: Sequence[Save]) -> dict[str, WriteRefusal]:
        refused: dict[str, WriteRefusal] = {}
        now, full = self._now(), False
        with self._transaction() as run:
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
                self._delete_excess(run, now)
        return refused

    def _delete_excess(self, run: Callable[..., sqlite3.Cursor], now: float) -> None:
        keys = [row[0] for row in run("SELECT key FROM conversations WHERE seen < ?", self._oldest(now))]
        count = run("SELECT count(*) FROM conversations").fetchone()[0] - len(keys)
        size = run("SELECT total(size) FROM parts").fetchone()[0]
        for (key,) in run("SELECT key FROM conversations WHERE seen >= ? ORDER BY seen", self._oldest(now)):
            if count <= self._limits.conversations and size <= self._limits.bytes:
                break
            size -= run("SELECT total(size) FROM parts WHERE key = ?", (key,)).fetchone()[0]
            count -= 1
            keys.append(key)
        for key in keys:
            self._delete(run, key)

    def _oldest(self, now: float) -> tuple[float]:
        return (now - self._limits.keep_s,)

    def _find(self, key: str) -> Saved | None:
        with self._transaction("DEFERRED") as run:  # both tables as they were at one moment, without a lock
            wanted = "SELECT generation FROM conversations WHERE key = ? AND seen >= ?"
            row = run(wanted, (key, *self._oldest(self._now()))).fetchone()
            parts = run("SELECT name, body FROM parts WHERE key = ?", (key,)).fetchall()
        return Saved(row[0], {name: bytes(body) for name, body in parts}) if row else None

    def _claim(self, key: str, generation: int) -> int | None:
        claim = "UPDATE conversations SET generation = ?, seen = ? WHERE key = ? AND generation = ?"
        with self._transaction() as run:
            claimed = run(claim, (generation + 1, self._now(), key, generation)).rowcount
        return generation + 1 if claimed else None

    def _drop(self, key: str, generation: int) -> None:
        with self._transaction() as run:
            wanted = "SELECT 1 FROM conversations WHERE key = ? AND generation = ?"
            if run(wanted, (key, generation)).fetchone():
                self._delete(run, key)

    def _delete(self, run: Callable[..., sqlite3.Cursor], key: str) -> None:
        run("DELETE FROM conversations WHERE key = ?", (key,))
        run("DELETE FROM parts WHERE key = ?", (key,))
