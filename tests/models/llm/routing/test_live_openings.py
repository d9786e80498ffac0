"""Openings in the real server, over real chat servers: what is heard, remembered, asked for and refused."""

import json
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from support.ports import unused_port
from support.servers.chat import chat_server, token
from support.serving import Server, Talk, run_command, serving

from rejoinder.models.llm.routing.opening import OPENED

pytestmark = pytest.mark.server

OPENING = "Sure, let me look at that,"
REST = "it is sunny today."
BIG_SECONDS = 1.5
CONFIGURATION = """
llm = ["big"]
openings = ["{opening}"]
opening_after_s = 1
speculate = "never"
trace_file = "trace.jsonl"

[models.big]
url = "http://127.0.0.1:{big}/v1"
model = "m"
first_token_s = 20
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path, list[Any]]]:
    folder, seen = tmp_path_factory.mktemp("openings"), list[Any]()

    def big(handler: BaseHTTPRequestHandler, messages: list[dict[str, str]]) -> None:
        seen.append(messages)
        time.sleep(BIG_SECONDS)
        knows = messages[-1]["content"] == OPENED
        for word in (REST if knows else "Hello, it is sunny today.").split():
            handler.wfile.write(token(word + " "))
        handler.wfile.write(token(None, "stop") + b"data: [DONE]\n\n")

    port = unused_port()
    (folder / "rejoinder.toml").write_text(CONFIGURATION.format(opening=OPENING, big=port))
    with chat_server(port, big), serving(folder, llm="big") as running:
        yield running, folder, seen


def test_an_opening_and_the_answer_are_one_reply(server: tuple[Server, Path, list[Any]]) -> None:
    running, folder, seen = server
    with Talk(running, query="&trace=true") as talk:
        talk.speak()
        hard = talk.until("rejoinder.trace")
        assert hard["counts"]["openings"] == 1
        (item,) = talk.until("response.done")["response"]["output"]
        assert item["content"][0]["transcript"] == f"{OPENING} {REST}"
    running.wait_idle()
    (line,) = (json.loads(line) for line in (folder / "trace.jsonl").read_text().splitlines())
    assert line["heard"] == f"{OPENING} {REST}" and line["models"] == ["big"]
    assert "wait for the opening" in [part["name"] for part in line["budget"]]
    assert [message["content"] for message in seen[-1][-2:]] == [OPENING, OPENED]


@pytest.mark.parametrize(
    ("setting", "sentence"),
    [
        ('opening_model = "none-such"', "there is no 'none-such'"),
        ("openings = [3]", "openings"),
        ("opening_after_s = -1", "opening_after_s"),
    ],
)
def test_an_opening_that_cannot_work_is_refused_at_the_start(
    tmp_path: Path, setting: str, sentence: str
) -> None:
    (tmp_path / "rejoinder.toml").write_text(f'llm = "scripted:llm|Yes."\n{setting}\n')
    ran = run_command("serve", "--port", str(unused_port()), folder=tmp_path)
    assert ran.returncode and sentence in " ".join(ran.stderr.split()), ran.stderr
