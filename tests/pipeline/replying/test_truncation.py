"""Conversations that are too long, and responses that may call one tool only: what a session says of both."""

from __future__ import annotations

import asyncio
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from support.callers.openai_client import client
from support.ports import unused_port
from support.published import conforms
from support.servers.chat import chat_server
from support.servers.tools import WEATHER, calls
from support.serving import Talk, serving

from rejoinder.agent.wires.realtime.settings import SessionSettings
from rejoinder.pipeline import Options, ProtocolError
from rejoinder.pipeline.context.tokens import BYTES_PER_TOKEN, CONVERSATION_TOKENS, ENTRY_TOKENS
from rejoinder.pipeline.history import RETENTION, History

LIMITS = {"post_instructions": 2_000}
"""The longest conversation in a prompt, as a session may give it."""


@pytest.mark.parametrize(("retention", "left"), [(0.5, 20), (0.8, 32), (1.0, 40), (0.0, 1)])
def test_the_retention_share_of_a_long_conversation_is_kept(retention: float, left: int) -> None:
    history = History()
    history.retention = retention
    characters = BYTES_PER_TOKEN * (CONVERSATION_TOKENS // 40 - ENTRY_TOKENS)
    for number in range(41):
        assert len(history.messages()) == number % 2 or number
        history.add("user" if number % 2 else "assistant", f"{number:03d}".ljust(characters))
    assert len(history.messages()) == left


def test_what_may_not_be_forgotten_is_an_error_until_something_is_deleted() -> None:
    history = History(tokens=200)
    history.retention = None
    for number in range(2):
        history.add_user("x" * BYTES_PER_TOKEN * (200 - ENTRY_TOKENS), ("item", number))
        if number:
            with pytest.raises(ProtocolError, match="has 400 tokens"):
                history.messages()
    history.remove(("item", 0))
    assert history.messages()


@pytest.mark.parametrize(
    ("given", "retention"),
    [
        ("auto", RETENTION),
        (None, RETENTION),
        ("disabled", None),
        ({"type": "retention_ratio", "retention_ratio": 0.8}, 0.8),
        ({"type": "retention_ratio", "retention_ratio": 0.8, "token_limits": LIMITS}, 0.8),
        (
            {"type": "retention_ratio", "retention_ratio": 0.8, "token_limits": {"post_instructions": -1}},
            "session.truncation.token_limits.post_instructions",
        ),
        ({"type": "retention_ratio", "retention_ratio": 1.5}, "session.truncation.retention_ratio"),
        ("never", "session.truncation"),
        ({"type": "retention_ratio"}, "session.truncation.retention_ratio"),
    ],
)
def test_what_a_session_may_say(given: Any, retention: Any) -> None:
    settings = SessionSettings(Options(), "default")
    if isinstance(retention, str):
        with pytest.raises(ProtocolError) as refused:
            settings.update({"truncation": given})
        assert refused.value.param == retention
        return
    settings.update({"truncation": given})
    assert settings.options().retention == retention
    limited = isinstance(given, dict) and "token_limits" in given
    assert settings.options().prompt_tokens == (LIMITS["post_instructions"] if limited else 0)
    assert settings.describe()["truncation"] == given
    settings.update({"truncation": "auto"})
    assert settings.options().retention == RETENTION


def add(talk: Talk, text: str, id_: str) -> None:
    content = [{"type": "input_text", "text": text}]
    item = {"type": "message", "role": "user", "id": id_, "content": content}
    talk.send("conversation.item.create", item=item)
    talk.until("conversation.item.done")


@pytest.mark.server
def test_a_response_to_what_is_too_long_fails_and_the_call_goes_on(tmp_path: Path) -> None:
    with serving(tmp_path, llm="scripted:llm") as server, Talk(server) as talk:
        talk.send("session.update", session={"type": "realtime", "truncation": "disabled"})
        talk.until("session.updated")
        add(talk, "x" * BYTES_PER_TOKEN * CONVERSATION_TOKENS, "long")
        add(talk, "Hello.", "short")
        for conversation in ("auto", "none"):
            talk.send("response.create", response={"conversation": conversation})
            error = talk.until("error")["error"]
            assert (error["type"], error["code"]) == ("invalid_request_error", "context_length_exceeded")
            done = talk.until("response.done")["response"]
            assert (done["status"], done["output"]) == ("failed", [])
            cause = done["status_details"]["error"]
            assert cause == {name: error[name] for name in ("type", "code", "message")}
        assert talk.turn()["status"] == "failed", "as does the answer to what is spoken"
        talk.send("conversation.item.delete", item_id="long")
        talk.send("response.create")
        assert talk.until("response.done")["response"]["status"] == "completed"
        conforms(talk.seen)


@pytest.mark.server
def test_one_call_is_all_where_no_two_may_be_made(tmp_path: Path) -> None:
    """The limit holds even if the language model's server ignores it."""
    asked: list[Any] = []

    def answer(handler: BaseHTTPRequestHandler, messages: list[dict[str, Any]]) -> None:
        made = [
            {"index": index, "id": f"call_{city}", "type": "function", "function": function}
            for index, city in enumerate(("rome", "oslo"))
            if (function := {"name": "weather", "arguments": f'{{"city": "{city}"}}'})
        ]
        handler.wfile.write(calls(*made))

    async def converse(server: Any) -> None:
        async with client(server) as openai, openai.realtime.connect(model="default") as connection:
            for parallel in (True, False):
                session: Any = {"type": "realtime", "tools": [WEATHER], "parallel_tool_calls": parallel}
                await connection.session.update(session=session)
                await connection.response.create(response={"output_modalities": ["text"], "input": []})
                async for event in connection:
                    if event.type == "response.done":
                        asked.append([item.call_id for item in event.response.output])
                        break

    port = unused_port()
    with chat_server(port, answer):
        with serving(tmp_path, llm=f"openai:http://127.0.0.1:{port}/v1#m") as server:
            asyncio.run(converse(server))
    assert asked == [["call_rome", "call_oslo"], ["call_rome_"]]
