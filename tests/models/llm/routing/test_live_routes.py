"""A router in the real server, over real chat servers: one call with rules and openings."""

import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from support.servers.chat import chat_server, token
from support.serving import Server, Talk, serving

from rejoinder.agent.server.own_server import free_port
from rejoinder.models.llm.routing.opening import OPENED

pytestmark = pytest.mark.server

OPENING = "Sure, let me look at that,"
REST = "it is sunny today."
SMALL = "I am fine, thank you."
BIG_SECONDS = 1.5
CONFIGURATION = """
llm = ["big", "small"]
openings = ["{opening}"]
opening_after_s = 1
speculate = "never"
trace_file = "trace.jsonl"
day_budget = 3.0

[models.big]
url = "http://127.0.0.1:{big}/v1"
model = "m"
first_token_s = 20

[models.small]
url = "http://127.0.0.1:{small}/v1"
model = "m"
first_token_s = 20

[[routes]]
model = "small"
difficulty = "easy"
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path, list[Any]]]:
    folder, seen = tmp_path_factory.mktemp("routes"), []

    def big(handler: BaseHTTPRequestHandler, messages: list[dict[str, str]]) -> None:
        seen.append(messages)
        time.sleep(BIG_SECONDS)
        told = messages[-1]["content"] == OPENED
        _say(handler, REST if told else "Hello, it is sunny today.")

    def small(handler: BaseHTTPRequestHandler, messages: list[dict[str, str]]) -> None:
        _say(handler, SMALL)

    ports = free_port(), free_port()
    text = CONFIGURATION.format(opening=OPENING, big=ports[0], small=ports[1])
    (folder / "rejoinder.toml").write_text(text)
    with (
        chat_server(ports[0], big),
        chat_server(ports[1], small),
        serving(folder, llm="big small") as running,
    ):
        yield running, folder, seen


def _say(handler: BaseHTTPRequestHandler, words: str) -> None:
    for word in words.split():
        handler.wfile.write(token(word + " "))
    handler.wfile.write(token(None, "stop") + b"data: [DONE]\n\n")


def test_one_call_has_a_routed_answer_and_an_opened_one(server: tuple[Server, Path, list[Any]]) -> None:
    running, folder, seen = server
    with Talk(running, query="&trace=true") as talk:
        talk.send("conversation.item.create", item=_typed("How are you?"))
        talk.send("response.create")
        assert _heard(talk.until("response.done")) == SMALL
        talk.speak()
        hard = talk.until("rejoinder.trace")
        assert hard["route"]["model"] == "big" and hard["counts"]["openings"] == 1
        assert _heard(talk.until("response.done")) == f"{OPENING} {REST}"
    running.wait_idle()
    lines = [json.loads(line) for line in (folder / "trace.jsonl").read_text().splitlines()]
    assert [line["route"] for line in lines] == [
        {"model": "small", "reason": "rule 1: difficulty easy"},
        {"model": "big", "reason": "no rule matches"},
    ]
    assert [line["heard"] for line in lines] == [SMALL, f"{OPENING} {REST}"]
    assert [message["content"] for message in seen[-1][-2:]] == [OPENING, OPENED]


def _typed(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def _heard(done: dict[str, Any]) -> str:
    return " ".join(part["transcript"] for item in done["response"]["output"] for part in item["content"])
