"""A SQLite file with a thread and a connection for readers, and one of each for the writer."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from rejoinder.models.file_thread import FileThread

Result = TypeVar("Result")

SQLITE_BUSY_S = 2.0
"""Longest wait for another process that writes, in seconds."""


class SqliteFile:
    """A file that several processes may share, and that only the user who runs this program reads.

    In SQLite's write-ahead mode, readers do not wait for the writer (sqlite.org/wal.html). What is deleted is
    overwritten. schema: statements that make the tables. check: called with the writer before these. name: of
    the threads. seconds: longest wait for the file, which may hang, as a disk does; None for no limit. Raises
    OSError and sqlite3.Error if the file cannot be opened.

    reader, writer: the connections, for ``read`` and ``write`` only.
    """

    def __init__(
        self,
        path: Path,
        schema: str,
        name: str,
        check: Callable[[sqlite3.Connection], None] | None = None,
        seconds: float | None = None,
    ) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))  # SQLite gives its other files this mode
        self.writer = _open(path)
        if check:
            check(self.writer)
        self.writer.executescript(schema)
        self.writer.execute("PRAGMA journal_mode = WAL")
        self.reader = _open(path)
        self._reading = FileThread(f"{name}-read", seconds)
        self._writing = FileThread(f"{name}-write", seconds)

    async def read(self, work: Callable[[], Result]) -> Result:
        """Return what ``work`` does with the reader; its errors pass, and TimeoutError where the file hangs.

        Cancelling stops the wait: what has begun goes on.
        """
        return await self._reading.run(work)

    async def write(self, work: Callable[[], Result]) -> Result:
        """Return what ``work`` does with the writer; its errors pass, and TimeoutError where the file hangs.

        Cancelling stops the wait: what has begun goes on.
        """
        return await self._writing.run(work)

    def in_transaction(self, work: Callable[[], None]) -> None:
        """Do something with the writer as a whole, or not at all; its errors pass."""
        self.writer.execute("BEGIN IMMEDIATE")
        try:
            work()
            self.writer.execute("COMMIT")
        finally:
            if self.writer.in_transaction:  # a full disk has ended it already
                self.writer.execute("ROLLBACK")

    async def aclose(self) -> None:
        """Close the file, after what was begun. Cancelling stops the wait only."""
        try:
            await self.read(self.reader.close)
            await self.write(self.writer.close)
        finally:
            self._reading.close()
            self._writing.close()


def _open(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, SQLITE_BUSY_S, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute(f"PRAGMA journal_size_limit = {2**22}")
    return connection
