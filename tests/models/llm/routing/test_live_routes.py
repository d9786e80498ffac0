"""Rules in the real server, over real chat servers: who is asked, the trace, and what a day costs."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from support.ports import unused_port
from support.servers.chat import chat_server, token
from support.serving import Server, Talk, run_command, serving

pytestmark = pytest.mark.server

SMALL = "I am fine, thank you."
BIG = "It is sunny today."
CONFIGURATION = """
llm = ["big", "little"]
speculate = "never"
trace_file = "trace.jsonl"
day_budget = 3.0

[models.big]
url = "http://127.0.0.1:{big}/v1"
model = "m"
first_token_s = 20
input_price = 1.0
output_price = 1.0

[models.little]
url = "http://127.0.0.1:{little}/v1"
model = "m"
first_token_s = 20

[[routes]]
model = "little"
difficulty = "easy"

[[routes]]
model = "little"
cost_left_below = 2.5
"""
TOKENS = 300_000
"""That the large model reports for each prompt and each answer: 0.6 of the day's budget."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    folder = tmp_path_factory.mktemp("routes")

    def big(handler: BaseHTTPRequestHandler, messages: list[dict[str, str]]) -> None:
        usage = {"prompt_tokens": TOKENS, "completion_tokens": TOKENS, "total_tokens": 2 * TOKENS}
        say(handler, BIG, {"id": "1", "object": "chat.completion.chunk", "choices": [], "usage": usage})

    def small(handler: BaseHTTPRequestHandler, messages: list[dict[str, str]]) -> None:
        say(handler, SMALL)

    ports = unused_port(), unused_port()
    (folder / "rejoinder.toml").write_text(CONFIGURATION.format(big=ports[0], little=ports[1]))
    with (
        chat_server(ports[0], big),
        chat_server(ports[1], small),
        serving(folder, llm="big little") as running,
    ):
        yield running, folder


def say(handler: BaseHTTPRequestHandler, words: str, *more: dict[str, Any]) -> None:
    for word in words.split():
        handler.wfile.write(token(word + " "))
    handler.wfile.write(token(None, "stop"))
    for chunk in more:
        handler.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
    handler.wfile.write(b"data: [DONE]\n\n")


def ask(talk: Talk, words: str) -> str:
    """Type words, and return what is heard."""
    content = [{"type": "input_text", "text": words}]
    talk.send("conversation.item.create", item={"type": "message", "role": "user", "content": content})
    talk.send("response.create")
    output = talk.until("response.done")["response"]["output"]
    return " ".join(part["transcript"] for item in output for part in item["content"])


def test_rules_choose_the_model_and_the_trace_says_why(server: tuple[Server, Path]) -> None:
    running, folder = server
    with Talk(running) as talk:
        assert ask(talk, "How are you?") == SMALL
        assert ask(talk, "Why is the sky blue?") == BIG
        assert ask(talk, "Why is the grass green?") == SMALL, "the day's budget is nearly used up"
    running.wait_idle()
    lines = [json.loads(line) for line in (folder / "trace.jsonl").read_text().splitlines()]
    assert [(line["route"], line["models"]) for line in lines] == [
        ({"model": "little", "reason": "rule 1: difficulty easy"}, ["little"]),
        ({"reason": "no rule matches"}, ["big"]),
        ({"model": "little", "reason": "rule 2: cost_left_below 2.5"}, ["little"]),
    ]


@pytest.mark.parametrize(
    ("rule", "sentence"),
    [
        ('model = "none"\nmax_words = 3', "rule 1: 'none' is none of the models in llm: big, little"),
        ('model = "little"', "rule 1: it has no condition"),
        ('model = "little"\nmax_word = 3', "rule 1: there is no setting 'max_word'; did you mean max_words?"),
        ("max_words = 3", "rule 1 needs a model: one of the models in llm"),
        ('model = "little"\nhours = "9-17"', "rule 1: hours has to be two times of day, as 22:00-06:00"),
        ('model = "little"\ncost_left_below = 9.0', "cost_left_below is 9, more than the day_budget"),
    ],
)
def test_a_rule_that_cannot_work_is_refused_at_the_start(tmp_path: Path, rule: str, sentence: str) -> None:
    text = CONFIGURATION.format(big=1, little=2).partition("[[routes]]")[0]
    (tmp_path / "rejoinder.toml").write_text(f"{text}[[routes]]\n{rule}\n")
    ran = run_command("serve", "--port", str(unused_port()), folder=tmp_path)
    assert ran.returncode and sentence in " ".join(ran.stderr.split())
