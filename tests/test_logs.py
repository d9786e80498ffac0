"""The log has no key, secret or token, and a line for the beginning and the end of each call."""

from __future__ import annotations

import json
import re
import urllib.request
from http.server import BaseHTTPRequestHandler
from pathlib import Path

import pytest
from serving import PATIENCE, Server, Talk, serving
from test_chat_faults import chat_server, token

from rejoinder.agent.keys import PROTOCOL, hashed
from rejoinder.agent.own_server import free_port

KEY = "rj_the-key_of-these~tests"
LLM_KEY = "a/key+of the=language model"
HIDDEN = {"Authorization": f"Bearer {KEY}"}


def minted(server: Server) -> str:
    wanted = urllib.request.Request(f"{server.http}/v1/realtime/client_secrets", b"{}", HIDDEN)
    with urllib.request.urlopen(wanted, timeout=PATIENCE) as answer:
        return str(json.load(answer)["value"])


def says_yes(handler: BaseHTTPRequestHandler, messages: list[dict[str, str]]) -> None:
    handler.wfile.write(token("Yes.") + token(None, "stop") + b"data: [DONE]\n\n")


def created(talk: Talk) -> str:
    made = next(event for event in talk.seen if event["type"] == "conversation.created")
    return str(made["conversation"]["id"])


@pytest.mark.parametrize("level", ["debug", "info"])
def test_no_secret_is_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, level: str) -> None:
    """Calls with a key, with a secret and over a second socket; the model behind HTTP wants a key, too."""
    port = free_port()
    monkeypatch.setenv("REJOINDER_API_KEYS", hashed(KEY))
    monkeypatch.setenv("REJOINDER_LLM_KEY", LLM_KEY)
    monkeypatch.setenv("OPENAI_API_KEY", "sk-proj-of_another-one")
    monkeypatch.setenv("REJOINDER_LOG_LEVEL", level)
    llm = f"openai:http://127.0.0.1:{port}/v1#m"
    with chat_server(port, says_yes), serving(tmp_path, llm=llm) as server:
        with Talk(server, additional_headers=HIDDEN) as talk:
            conversation = created(talk)
            assert talk.turn()["status"] == "completed"
            talk.cut()
        with Talk(server, query=f"&conversation_id={conversation}", additional_headers=HIDDEN) as back:
            assert created(back) == conversation
        secret = minted(server)
        with Talk(server, subprotocols=["realtime", f"{PROTOCOL}{secret}"]) as talk:
            assert talk.turn()["status"] == "completed"
            other = created(talk)
        server.wait_idle()
    log = server.log.read_text()
    for hidden in (KEY, LLM_KEY, "sk-proj", secret, conversation, other):
        assert hidden not in log and hidden[4:] not in log, [
            line for line in log.splitlines() if hidden[4:] in line
        ]
    # What a library cuts out of the middle of a long message may leave a secret's end.
    assert not re.search(rf"{conversation[-12:]}|{secret[-12:]}|{other[-12:]}", log)
    if level == "debug":
        for library in ("uvicorn.error", "openai._base_client", "asyncio"):
            assert f" {library} DEBUG " in log, "there is something to hide things in"
        assert "authorization" in log and "conversation_id=" in log and PROTOCOL in log
