"""Keeps facts about callers in an SQLite file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

FACTS_PER_CALLER = 50
"""Most facts kept of one caller; the one that was not changed for longest goes first."""
CALLERS = 100_000
"""Default for the most callers kept; the one whose facts were not changed for longest goes first."""
BUSY_S = 2.0
"""Longest wait for another process that writes to the file, in seconds."""


class SqliteMemory:
    """Facts about callers in an SQLite file.

    path: the file, which is made if it is missing. callers: most callers kept.

    Several processes may use the same file. The methods raise ``sqlite3.Error`` if the file cannot be used.
    To delete the facts about a caller from outside: ``SqliteMemory("memory.sqlite").forget("+15550100")``.
    """

    def __init__(self, path: str | Path, callers: int = CALLERS) -> None:
        self._path = Path(path)
        self._callers = callers

    def facts(self, caller: str) -> Mapping[str, str]:
        """Return the facts about a caller, in the order in which they were told."""
        with self._opened() as db:
            return dict(db.execute("SELECT key, value FROM fact WHERE caller = ? ORDER BY told", [caller]))

    def remember(self, caller: str, key: str, value: str) -> None:
        """Keep a fact about a caller; it replaces the one of the same name, and may displace the oldest."""
        with self._opened() as db:
            db.execute("DELETE FROM fact WHERE caller = ? AND key = ?", [caller, key])
            db.execute("INSERT INTO fact (caller, key, value) VALUES (?, ?, ?)", [caller, key, value])
            db.execute(
                "DELETE FROM fact WHERE caller = ? AND told NOT IN"
                " (SELECT told FROM fact WHERE caller = ? ORDER BY told DESC LIMIT ?)",
                [caller, caller, FACTS_PER_CALLER],
            )
            db.execute(
                "INSERT OR REPLACE INTO caller (name, changed) SELECT ?, max(told) FROM fact", [caller]
            )
            self._drop_oldest(db)

    def forget(self, caller: str) -> None:
        """Delete all facts about a caller, also from the free pages of the file."""
        with self._opened() as db:
            db.execute("DELETE FROM fact WHERE caller = ?", [caller])
            db.execute("DELETE FROM caller WHERE name = ?", [caller])

    def _drop_oldest(self, db: sqlite3.Connection) -> None:
        (known,) = db.execute("SELECT count(*) FROM caller").fetchone()
        if known > self._callers:
            (oldest,) = db.execute("SELECT name FROM caller ORDER BY changed LIMIT 1").fetchone()
            db.execute("DELETE FROM fact WHERE caller = ?", [oldest])
            db.execute("DELETE FROM caller WHERE name = ?", [oldest])

    @contextmanager
    def _opened(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection for one transaction."""
        with closing(sqlite3.connect(self._path, timeout=BUSY_S)) as db, db:
            db.execute("PRAGMA secure_delete = ON")
            db.execute(
                "CREATE TABLE IF NOT EXISTS fact (told INTEGER PRIMARY KEY AUTOINCREMENT,"
                " caller TEXT NOT NULL, key TEXT NOT NULL, value TEXT NOT NULL, UNIQUE (caller, key))"
            )
            db.execute(
                "CREATE TABLE IF NOT EXISTS caller (name TEXT PRIMARY KEY, changed INTEGER NOT NULL)"
                " WITHOUT ROWID"
            )
            db.execute("CREATE INDEX IF NOT EXISTS oldest ON caller (changed)")
            yield db
