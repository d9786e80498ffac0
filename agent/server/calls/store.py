"""Keeps calls that are over in a SQLite file, within its limits of days and bytes."""

from __future__ import annotations

import json
import math
import sqlite3
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rejoinder.agent.server.calls.filters import CallFilter
from rejoinder.agent.server.calls.kept import KeptCall
from rejoinder.models.sqlite_file import SqliteFile
from rejoinder.pipeline import PipelineError

CALLS_SCHEMA = """
PRAGMA auto_vacuum = INCREMENTAL;
CREATE TABLE IF NOT EXISTS calls (id TEXT PRIMARY KEY, call TEXT NOT NULL, began REAL NOT NULL,
    wire TEXT NOT NULL, errors INTEGER NOT NULL, slowest_ms REAL NOT NULL, size INTEGER NOT NULL,
    summary TEXT NOT NULL, words TEXT NOT NULL, body TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS calls_began ON calls (began, size);
CREATE INDEX IF NOT EXISTS calls_call ON calls (call);
"""
"""The table of calls. Its limits are read from the index. ``body`` is the whole record as JSON."""
CALLS_VERSION = 1
"""The version of the table (PRAGMA user_version). Raise it when the table changes."""
SEARCH_S = 3.0
"""Longest search, in seconds. It reads the words of all calls that fit otherwise."""
FACTS = ("id", "call", "began", "wire", "errors", "slowest_ms")
"""What the table has of a call's summary, in its order."""
STEPS = 100
"""Steps of SQLite between two looks at the clock. A call takes about ten, one of which reads its words."""
CALL_OVERHEAD = 400
"""Bytes of a call beside its texts: its row, its index entries and its part of unfilled pages."""


class CannotOpen(PipelineError):
    """The file cannot be used."""


@dataclass(frozen=True, slots=True)
class StoreLimits:
    """The limits of a file: days after the begin of a call, and bytes of all calls."""

    days: float
    bytes: int


class CallStore:
    """Calls in one file, which several processes may share. Raises CannotOpen.

    now: returns seconds since the epoch. The coroutines raise sqlite3.Error.
    """

    def __init__(self, path: Path, limits: StoreLimits, now: Callable[[], float]) -> None:
        self._limits = limits
        self._now = now

        def check(writer: sqlite3.Connection) -> None:
            (version,) = writer.execute("PRAGMA user_version").fetchone()
            if version not in (0, CALLS_VERSION):
                raise CannotOpen(f"{path} is of version {version}, and this program reads {CALLS_VERSION}")

        try:
            self._file = SqliteFile(path, CALLS_SCHEMA, "calls", check)
            self._file.writer.execute(f"PRAGMA user_version = {CALLS_VERSION}")
        except (OSError, sqlite3.Error) as error:
            raise CannotOpen(f"cannot open {path}: {error}") from error

    async def put(self, call: KeptCall) -> None:
        """Store a call that is over, and delete what is beyond the limits. Cancelling stops the wait only."""
        await self._file.write(lambda: self._put(call))

    async def trim(self) -> None:
        """Delete what is beyond the limits. Cancelling stops the wait only."""
        await self._file.write(self._trim)

    async def summaries(self, wanted: CallFilter) -> list[dict[str, Any]]:
        """Return the summaries of calls, the last one first. Cancelling stops the wait only."""
        found = await self._file.read(lambda: self._find("summary", wanted))
        return [json.loads(summary) for (summary,) in found]

    async def bodies(self, wanted: CallFilter) -> list[tuple[str, float, str]]:
        """Return whole calls, the last one first: id, begin and JSON. Cancelling stops the wait only."""
        return await self._file.read(lambda: self._find("id, began, body", wanted))

    async def get(self, id_: str) -> str | None:
        """Return a whole call as JSON, None if it is not here. Cancelling stops the wait only.

        id_: the record's, or the call's own.
        """

        def read() -> str | None:
            query = "SELECT body FROM calls WHERE id = ? OR call = ? ORDER BY began DESC LIMIT 1"
            row = self._file.reader.execute(query, (id_, id_)).fetchone()
            return str(row[0]) if row else None

        return await self._file.read(read)

    async def aclose(self) -> None:
        """Close the file, after what was begun. Cancelling stops the wait only."""
        await self._file.aclose()

    def _put(self, call: KeptCall) -> None:
        summary = call.summary
        texts = json.dumps(summary, ensure_ascii=False), call.words, call.body
        size = sum(len(text.encode()) for text in texts) + CALL_OVERHEAD
        facts = *(summary[name] for name in FACTS), size
        run = self._file.writer.execute

        def put() -> None:
            run("INSERT OR REPLACE INTO calls VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", (*facts, *texts))
            self._delete()

        self._file.in_transaction(put)
        run("PRAGMA incremental_vacuum").fetchall()

    def _trim(self) -> None:
        with self._file.writer:
            self._delete()
        self._file.writer.execute("PRAGMA incremental_vacuum").fetchall()

    def _delete(self) -> None:
        run = self._file.writer.execute
        run("DELETE FROM calls WHERE began < ?", (self._now() - 86_400.0 * self._limits.days,))
        (size,) = run("SELECT total(size) FROM calls").fetchone()
        while size > self._limits.bytes:
            oldest, bytes_ = run("SELECT id, size FROM calls ORDER BY began LIMIT 1").fetchone()
            run("DELETE FROM calls WHERE id = ?", (oldest,))
            size -= bytes_

    def _find(self, columns: str, wanted: CallFilter) -> list[Any]:
        clauses, values = ["slowest_ms >= ?"], [wanted.slow_ms]
        conditions: list[tuple[bool, str, Any]] = [
            (bool(wanted.wire), "wire = ?", wanted.wire),
            (math.isfinite(wanted.since), "began >= ?", wanted.since),
            (math.isfinite(wanted.before), "began < ?", wanted.before),
            (wanted.errors, "errors >= ?", 1),
            (bool(wanted.words), "instr(words, ?) > 0", wanted.words),
        ]
        for holds, clause, value in conditions:
            if holds:
                clauses.append(clause)
                values.append(value)
        query = f"SELECT {columns} FROM calls WHERE {' AND '.join(clauses)} ORDER BY began DESC LIMIT ?"
        late = time.monotonic() + SEARCH_S
        self._file.reader.set_progress_handler(lambda: time.monotonic() > late, STEPS)
        try:
            return self._file.reader.execute(query, (*values, wanted.limit)).fetchall()
        finally:
            self._file.reader.set_progress_handler(None, 0)
