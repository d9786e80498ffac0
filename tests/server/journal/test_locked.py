"""A file of conversations that another program locks: calls go on, and are kept again after it."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support.resuming import conversation
from support.servers.faults import metric, until
from support.serving import PATIENCE, Talk, serving

pytestmark = pytest.mark.server

FAILED = "conversations are not kept: "


def test_calls_go_on_while_another_program_locks_their_store(tmp_path: Path) -> None:
    """What is said meanwhile is in the conversation that a restarted server goes on with."""
    path = tmp_path / "kept.db"
    settings = {"conversations": f"sqlite:{path}"}
    with serving(tmp_path, clean=False, **settings) as server:
        with Talk(server) as talk:
            assert talk.turn()["status"] == "completed"
            assert metric(server, "journal_writes_total", outcome="failed") == 0
            with closing(sqlite3.connect(path, PATIENCE, isolation_level=None)) as other:
                other.execute("BEGIN EXCLUSIVE")
                for _ in range(2):
                    assert talk.turn()["status"] == "completed"
                until(lambda: FAILED in server.log.read_text(), "the log does not name the lock")
                until(
                    lambda: metric(server, "journal_writes_total", outcome="failed") >= 2,
                    "the writes are not tried again",
                )
                assert "conversations are kept again" not in server.log.read_text()
                other.execute("ROLLBACK")
            until(lambda: "conversations are kept again" in server.log.read_text(), "nothing is kept")
            assert server.log.read_text().count("conversations are not kept") == 1, "one line a shortage"
            server.process.kill()
            server.process.wait(PATIENCE)
    with serving(tmp_path, port=server.port, **settings) as restarted:
        with Talk(restarted, query=f"&conversation_id={conversation(talk)}") as after:
            after.until("rejoinder.resumed")
            asked = 0
            while asked < 3:
                asked += after.until("conversation.item.done")["item"]["role"] == "user"
            assert after.turn()["status"] == "completed"
