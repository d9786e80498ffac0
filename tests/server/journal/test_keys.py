"""A conversation that goes on at another server: whose key it counts for, and whether it may."""

from __future__ import annotations

import json
import sqlite3
import urllib.request
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from support.resuming import conversation
from support.serving import Server, Talk, serving
from websockets.exceptions import ConnectionClosed, InvalidStatus

from rejoinder.agent.server.keys import hashed

pytestmark = pytest.mark.server
KEY = "rj_the-key-of-these-tests"


def bearer(key: str) -> dict[str, Any]:
    return {"additional_headers": {"Authorization": f"Bearer {key}"}}


def resuming(server: Server, conversation_id: str, key: str, greeted: bool = True) -> Talk:
    return Talk(server, greeted, query=f"&conversation_id={conversation_id}", **bearer(key))


def secret(server: Server) -> str:
    """Return a client secret, which a browser shows."""
    headers = {"Authorization": f"Bearer {KEY}"}
    request = urllib.request.Request(f"{server.http}/v1/realtime/client_secrets", b"{}", headers)
    with urllib.request.urlopen(request, timeout=20) as answer:
        return str(json.load(answer)["value"])


def typed(talk: Talk) -> None:
    """Add an item, which is in the store when it is confirmed."""
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello."}]}
    talk.send("conversation.item.create", item=item)
    talk.until("conversation.item.added")


def copied(path: Path, conversation_id: str, change: Callable[[dict[str, Any]], object]) -> None:
    """Add a copy of the only conversation of a store, with another id and a changed state."""
    file = sqlite3.connect(path)
    key = sha256(conversation_id.encode()).hexdigest()
    state = json.loads(file.execute("SELECT body FROM parts WHERE name = 'state'").fetchone()[0])
    change(state)
    body = json.dumps(state).encode()
    file.execute("INSERT INTO conversations SELECT ?, generation, seen FROM conversations LIMIT 1", (key,))
    file.execute("INSERT INTO parts VALUES (?, 'state', ?, ?)", (key, body, len(body)))
    file.commit()
    file.close()


def test_resumed_conversation_counts_for_the_key_that_made_its_secret(tmp_path: Path) -> None:
    store = tmp_path / "kept.db"
    settings = {"conversations": f"sqlite:{store}", "api_keys": f"{hashed(KEY)}:1:0"}
    with serving(tmp_path, clean=False, **settings) as server:
        shown = secret(server)
        with Talk(server, **bearer(shown)) as talk:
            typed(talk)
            server.process.kill()
        server.process.wait(20.0)
    copied(store, "conv_removed", lambda state: state["about"].update(owner=hashed("rj_removed")))
    copied(store, "conv_newer", lambda state: state.update(version=99))
    with serving(tmp_path, port=server.port, **settings) as restarted:
        with pytest.raises(InvalidStatus, match="401"):
            resuming(restarted, "conv_removed", shown)
        with pytest.raises(InvalidStatus, match="401"):
            resuming(restarted, "conv_newer", shown)
        restarted.wait_idle()
        with resuming(restarted, conversation(talk), shown) as resumed:
            resumed.until("rejoinder.resumed")
            with pytest.raises(InvalidStatus, match="429"):
                Talk(restarted, **bearer(KEY))


def test_server_without_a_free_line_leaves_the_conversation_to_its_owner(tmp_path: Path) -> None:
    settings = {"conversations": f"sqlite:{tmp_path / 'kept.db'}"}
    (tmp_path / "full").mkdir()
    with (
        serving(tmp_path, **settings) as server,
        serving(tmp_path / "full", max_sessions="1", **settings) as full,
        Talk(server) as talk,
        Talk(full),
    ):
        typed(talk)
        query = f"&conversation_id={conversation(talk)}"
        with (
            Talk(full, False, query=query) as refused,
            pytest.raises(ConnectionClosed, match="lines are busy"),
        ):
            refused.event()
        typed(talk)
        talk.send("response.create")
        assert talk.until("response.done")["response"]["status"] == "completed"


def test_the_store_is_not_read_for_a_foreign_page_or_a_wrong_key(tmp_path: Path) -> None:
    store = tmp_path / "kept.db"
    settings = {"conversations": f"sqlite:{store}", "api_keys": hashed(KEY)}
    with serving(tmp_path, clean=False, **settings) as server:
        with sqlite3.connect(store) as file:
            file.execute("ALTER TABLE conversations RENAME TO lost")
        file.close()
        foreign = bearer(KEY)["additional_headers"] | {"Origin": "https://elsewhere.example"}
        with pytest.raises(InvalidStatus, match="403"):
            Talk(server, query="&conversation_id=conv_1", additional_headers=foreign)
        with pytest.raises(InvalidStatus, match="401"):
            resuming(server, "conv_1", "rj_of_another_server")
        assert "was not looked up" not in server.log.read_text()
        with resuming(server, "conv_1", KEY):
            assert "a conversation was not looked up: no such table" in server.log.read_text()
