"""The agent of examples/ that answers from an MCP server, as its readers serve it."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from support.desk import desk
from support.paths import ROOT
from support.servers.chat import chat_server
from support.servers.obedient import Obedient
from support.serving import PATIENCE, serving

from rejoinder.agent.server.own_server import free_port

pytestmark = pytest.mark.server

AGENT = ROOT / "examples" / "orders_agent.py"


def until(call: Any, type_: str) -> dict[str, Any]:
    while True:
        event: dict[str, Any] = json.loads(call.recv(timeout=20))
        assert event["type"] != "error", event
        if event["type"] == type_:
            return event


def asks(call: Any, text: str) -> str:
    """Type something, and return the first answer in words."""
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}
    call.send(json.dumps({"type": "conversation.item.create", "item": item}))
    call.send(json.dumps({"type": "response.create"}))
    said: str = until(call, "response.output_audio_transcript.done")["transcript"]
    until(call, "response.done")
    return said


def status(call: Any) -> str:
    """Ask for the state of an order. On a busy machine its server comes after the first call."""
    deadline = time.monotonic() + PATIENCE
    while "There is no tool" in (told := asks(call, 'call orders_order_status {"number": "4711"}')):
        assert time.monotonic() < deadline, told
    return told


def test_example_answers_from_its_server(tmp_path: Path) -> None:
    llm, port = Obedient(), free_port()
    with chat_server(port, llm.answer):
        with serving(tmp_path, llm=f"openai:http://127.0.0.1:{port}/v1#m", agent=str(AGENT)) as server:
            with server.call() as call:
                until(call, "response.done")  # of the greeting
                told = status(call)
                assert told == "It says: packed, it leaves tomorrow."
                told = asks(call, 'call orders_cancel_order {"number": "4711"}')
                assert "There is no tool orders_cancel_order." in told
            server.wait_idle()


def test_client_names_a_server_beside_those_of_the_agent(tmp_path: Path) -> None:
    llm, port = Obedient(), free_port()
    with desk("http", tmp_path) as one, chat_server(port, llm.answer):
        flags = {"llm": f"openai:http://127.0.0.1:{port}/v1#m", "allowed_mcp_urls": one.url}
        with serving(tmp_path, agent=str(AGENT), **flags) as server:
            with server.call() as call:
                until(call, "response.done")  # of the greeting
                tool = {
                    "type": "mcp",
                    "server_label": "desk",
                    "server_url": one.url,
                    "require_approval": "never",
                }
                call.send(json.dumps({"type": "session.update", "session": {"tools": [tool]}}))
                until(call, "mcp_list_tools.completed")
                told = status(call)
                assert told == "It says: packed, it leaves tomorrow.", "the agent tells its own results"
                item = {"type": "input_text", "text": 'call desk_add {"a": 1, "b": 2}'}
                message = {"type": "message", "role": "user", "content": [item]}
                call.send(json.dumps({"type": "conversation.item.create", "item": message}))
                call.send(json.dumps({"type": "response.create"}))
                until(call, "response.mcp_call.completed")
                call.send(json.dumps({"type": "response.create"}))
                done = until(call, "response.output_audio_transcript.done")
                assert done["transcript"] == "It says: 3.", "the client asks for those of its servers"
            server.wait_idle()
