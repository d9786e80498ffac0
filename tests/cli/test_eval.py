"""``rejoinder eval``: calls of a YAML file against an agent with a model over HTTP."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from support.paths import EXAMPLES
from support.servers.chat import chat_server, token
from support.servers.clerk import WANTED, Clerk
from typer.testing import CliRunner

from rejoinder.agent.cli.app import app
from rejoinder.agent.config import ConfigError
from rejoinder.agent.server.own_server import free_port
from rejoinder.agent.simulate.evaluation.checks import fits, plain
from rejoinder.agent.simulate.evaluation.plan import read_plan

CALLS = f"""
agent: {EXAMPLES}/restaurant.py
llm: openai:http://127.0.0.1:PORT/v1#clerk
repeat: 2
calls:
  - name: books a table
    script:
      - {WANTED}
    expect:
      tools:
        - book: {{people: 4, at: "2026-11-24*", name: anna}}
      no_tools: [free_tables]
      says: [booked for 4]
      never_says: [sorry]
      agent: agent
  - name: asks for the number
    caller: "+3221234567"
    script:
      - hello
      - pauses: 0.5
      - are you there
      - interrupts: {WANTED}
        after: 0.3
    expect:
      says: [For how many]
      tools: [book: {{people: 5}}]
    threshold: THRESHOLD
"""


@pytest.fixture
def clerk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Yield the port of a language model that books tables."""
    monkeypatch.setenv("RESTAURANT_DB", str(tmp_path / "db.sqlite"))
    port = free_port()
    with chat_server(port, Clerk().answer):
        yield port


def written(folder: Path, text: str, **values: object) -> Path:
    for name, value in values.items():
        text = text.replace(name, str(value))
    (folder / "calls.yaml").write_text(text)
    return folder / "calls.yaml"


def run(file: Path, *arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["eval", str(file), *arguments], env={"COLUMNS": "200"})
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout, done.stderr


def test_calls_below_the_threshold_fail(clerk: int, tmp_path: Path) -> None:
    file = written(tmp_path, CALLS, PORT=clerk, THRESHOLD=0.5)
    code, out, _ = run(file, "--json", str(tmp_path / "out.json"), "--junit", str(tmp_path / "out.xml"))
    assert code == 1
    assert re.search(r"books a table +│ 2/2 +│ 100%", out) and re.search(
        r"asks for the number +│ 0/2 +│ 0%", out
    )
    assert "2x book(people=5) was not called; called: book(people=4" in out
    report = json.loads((tmp_path / "out.json").read_text())
    assert not report["good"] and [one["rate"] for one in report["calls"]] == [1.0, 0.0]
    first = report["calls"][0]["repetitions"][0]
    assert "tool   book(people=4" in first["story"] and first["latency_ms"][0] > 0
    cases = ElementTree.parse(tmp_path / "out.xml").getroot().findall(".//testcase")
    assert [(case.get("name"), case.find("failure") is not None) for case in cases] == [
        ("books a table", False),
        ("asks for the number", True),
    ]
    failure = cases[1].find("failure")
    assert failure is not None and failure.get("message") == "0 of 2 passed, 50% must"
    assert "are you there" in str(failure.text)


def test_threshold_that_is_reached_ends_with_0(clerk: int, tmp_path: Path) -> None:
    file = written(tmp_path, CALLS, PORT=clerk, THRESHOLD=0.0)
    code, out, _ = run(file, "--repeat", "1", "--json", "-")
    assert code == 0 and json.loads(out)["good"]
    code, out, _ = run(file, "--only", "books a table", "--repeat", "1")
    assert code == 0 and "asks for the number" not in out


JUDGED = f"""
agent: {EXAMPLES}/restaurant.py
calls:
  - name: polite
    script: [hello]
    expect: {{judge: "Is the agent polite?"}}
"""


@pytest.mark.parametrize(("answer", "code"), [("YES: it is", 0), ("NO: it shouts", 1), ("perhaps", 1)])
def test_judge_decides(answer: str, code: int, clerk: int, tmp_path: Path) -> None:
    def judge(handler: BaseHTTPRequestHandler, messages: list[dict[str, Any]]) -> None:
        handler.wfile.write(token(answer) + token(None, "stop") + b"data: [DONE]\n\n")

    port = free_port()
    with chat_server(port, judge):
        llm, judging = (f"openai:http://127.0.0.1:{one}/v1#m" for one in (clerk, port))
        got, out, err = run(written(tmp_path, JUDGED), "--llm", llm, "--judge", judging)
    assert got == code, out + err
    if answer.startswith("NO"):
        assert "1x judged no: Is the agent polite? (it shouts)" in out
    elif answer == "perhaps":
        assert "neither YES nor NO" in err


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("agent: a.py\ncalls: [\n", r"calls.yaml:3: .*expected the node content"),
        ("agent: a.py\n", r"calls.yaml:1: calls: Field required"),
        ("", r"calls.yaml:1: the file: Input should be"),
        (
            "agent: a.py\nrepeat: 0\ncalls: [{name: a, script: [b], expect: {}}]\n",
            r":2: repeat: .*greater than",
        ),
        (
            "agent: a.py\ncalls:\n  - name: a\n    script: [b]\n    expect:\n      tols: []\n",
            r":6: calls.1.expect.tols: there is no such field",
        ),
        (
            "agent: a.py\ncalls:\n  - name: a\n    script:\n      - b\n      - pauses: 1\n        says: c\n"
            "    expect: {}\n",
            r":6: calls.1.script.2: a step has exactly one of says, interrupts",
        ),
        (
            "agent: a.py\ncalls:\n  - name: a\n    script:\n      - pauses: long\n    expect: {}\n",
            r":5: calls.1.script.1.pauses: Input should be a valid number",
        ),
        (
            "agent: a.py\ncalls:\n- {name: a, script: [b], expect: {}}\n"
            "- {name: a, script: [b], expect: {}}\n",
            r":1: the file: two calls have the name 'a'",
        ),
        (
            "agent: a.py\ncalls:\n- name: a\n  script: [b]\n  expect:\n    tools:\n    - {a: {}, b: {}}\n",
            r":6: calls.1.expect.tools: each entry is one tool",
        ),
    ],
)
def test_mistakes_say_line_and_field(text: str, mistake: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=mistake):
        read_plan(written(tmp_path, text))
    assert run(tmp_path / "calls.yaml")[0] == 2


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ([], "no language model is given"),
        (["--llm", "openai:http://127.0.0.1:1/v1#m"], "the call 'polite' asks a judge"),
        (
            ["--llm", "openai:http://127.0.0.1:1/v1#m", "--only", "rude"],
            "there is no call 'rude'; there are: polite",
        ),
    ],
)
def test_what_is_missing_is_named(arguments: list[str], reason: str, tmp_path: Path) -> None:
    code, _, err = run(written(tmp_path, JUDGED), *arguments)
    assert code == 2 and reason in err


@pytest.mark.parametrize(
    ("expected", "reason"),
    [
        ("tools: [{bok: {people: 4}}]", "call 'a': the agent has no tool 'bok'; did you mean book?"),
        ("no_tools: [pay]", "call 'a': the agent has no tool 'pay'; the tools are: "),
    ],
)
def test_tool_that_the_agent_does_not_have_is_named_before_a_call(
    expected: str, reason: str, tmp_path: Path
) -> None:
    text = f"agent: {EXAMPLES}/restaurant.py\nllm: openai:http://127.0.0.1:1/v1#m\n"
    text += f"calls:\n- name: a\n  script: [b]\n  expect: {{{expected}}}\n"
    code, _, err = run(written(tmp_path, text))
    assert code == 2 and reason in err


def test_hook_that_fails_fails_the_call(clerk: int, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from rejoinder import Agent\nagent = Agent()\n"
        "@agent.on_turn\ndef hook(call, words):\n    raise OSError('no disk')\n"
    )
    text = "agent: mine.py\nllm: openai:http://127.0.0.1:PORT/v1#clerk\n"
    text += "calls: [{name: a, script: [hello], expect: {}}]\n"
    code, out, err = run(written(tmp_path, text, PORT=clerk))
    assert code == 1 and "on_turn failed: " in out and "mine.py, line 5: OSError: no disk" in err


def test_agent_is_found_beside_the_file(tmp_path: Path) -> None:
    text = "agent: agents/mine.py:front\ncalls: [{name: a, script: [b], expect: {}}]\n"
    assert read_plan(written(tmp_path, text)).agent == f"{tmp_path}/agents/mine.py:front"


@pytest.mark.parametrize(
    ("wanted", "good"),
    [
        ({"people": 4}, True),
        ({"people": "4"}, True),
        ({"people": 5}, False),
        ({"name": "ANNA"}, True),
        ({"name": "an*"}, True),
        ({"name": "nn"}, False),
        ({"at": "2026-11-24T19*"}, True),
        ({"window": True}, True),
        ({"window": 1}, False),
        ({"guest": {"vip": False}}, True),
        ({"guest": {"vip": True}}, False),
        ({"missing": None}, False),
    ],
)
def test_arguments_fit(wanted: dict[str, Any], good: bool) -> None:
    given = {
        "people": 4,
        "name": "Anna",
        "at": "2026-11-24T19:00:00",
        "window": True,
        "guest": {"vip": False},
    }
    assert fits(given, wanted) is good


def test_words_are_whole_and_without_case_and_punctuation() -> None:
    assert plain("At seven") in plain("Booked: at Seven!") and plain("even") not in plain("at seven")
