"""The pytest plugin, as an integrator's tests get it: in a process of its own, through the entry point."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from support.servers.chat import chat_server, token

from rejoinder.agent.server.own_server import free_port
from rejoinder.agent.simulate.judging import judge
from rejoinder.models.scripted import ScriptedLlm
from rejoinder.pipeline import ModelError

AGENT = '''
from rejoinder import Agent, Call

agent = Agent("You take bookings.", greeting="Hello.")


@agent.tool
async def book(call: Call, people: int) -> str:
    """Book a table."""
    return f"Booked for {people}."
'''
TEST = """
import pytest
from my_agent import agent
from rejoinder.simulate import ToolUse


def test_books(simulated_call):
    call = simulated_call(agent, ['@book {"people": 4}', "Booked."]).says("for four").hears_out().call()
    assert call.tools_called == [ToolUse("book", {"people": 4})]
    assert call.heard == ["Hello.", "Booked."]


def test_books_for_five(simulated_call):
    call = simulated_call(agent, ['@book {"people": 4}', "Booked."]).says("for five").hears_out().call()
    call.called("book", people=5)


def broken(call, words):
    raise LookupError("no table " + words)


@pytest.fixture
def broken_agent():
    agent.hooks.on_turn.append(broken)
    yield agent
    agent.hooks.on_turn.remove(broken)


def test_hook_fails(simulated_call, broken_agent):
    simulated_call(broken_agent, ["Booked."]).says("for four").hears_out().call()


def test_hook_is_expected_to_fail(simulated_call, broken_agent):
    with pytest.raises(LookupError, match="no table for four"):
        simulated_call(broken_agent, ["Booked."]).says("for four").hears_out().call()
    call = simulated_call(broken_agent, ["Booked."]).says("for four").hears_out().call(raises=False)
    assert call.heard == ["Hello.", "Booked."] and call.failures[0].what == "on_turn"


def test_without_a_call(simulated_call):
    simulated_call(agent, ["Booked."]).says("for four").hears_out()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [((agent, "Booked."), "it must be a list of texts"), ((pytest, ["Hi."]), "and this is of type module")],
)
def test_mistake(simulated_call, arguments, says):
    with pytest.raises(TypeError, match=says):
        simulated_call(*arguments)


def test_polite(simulated_call, judge):
    call = simulated_call(agent, ["Go away."]).says("for four").hears_out().call()
    verdict = judge(call, "Is the agent polite?")
    assert not verdict and verdict.reason == "it sends the caller away"
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "my_agent.py").write_text(AGENT)
    (folder / "test_my_agent.py").write_text(TEST)
    command = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        *arguments,
    ]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


@pytest.mark.server
def test_failed_test_shows_what_was_said_and_done(tmp_path: Path) -> None:
    done = run(tmp_path)
    assert "2 failed, 5 passed, 1 skipped, 1 error" in done.stdout, done.stdout + done.stderr
    assert "book(people=5) was not called; called were: book(people=4)" in done.stdout
    assert "simulated call 1" in done.stdout
    shown = done.stdout.partition("simulated call 1")[2]
    for words in (
        "agent  Hello.",
        "caller for five",
        "tool   book done after 0.00 s: Booked for 4.",
        "agent  Booked.",
    ):
        assert words in shown
    assert done.stdout.count("simulated call 1") == 2, "a test that passes shows nothing"
    assert "made a caller that held no call: end its script with .call()" in done.stdout
    assert "LookupError: no table for four" in done.stdout and "on_turn raised it, " in done.stdout
    assert "error  on_turn failed: test_my_agent.py, line" in done.stdout


@pytest.mark.server
def test_judge_is_asked_where_one_is_configured(tmp_path: Path) -> None:
    asked: list[Any] = []

    def answer(handler: BaseHTTPRequestHandler, messages: list[dict[str, Any]]) -> None:
        asked.append(messages)
        said = "NO: it sends the caller away" if "Go away." in messages[-1]["content"] else "YES"
        handler.wfile.write(token(said) + token(None, "stop") + b"data: [DONE]\n\n")

    port = free_port()
    with chat_server(port, answer):
        spec = f"openai:http://127.0.0.1:{port}/v1#judge"
        done = run(tmp_path, "-k", "polite", "--judge", spec)
    assert "1 passed" in done.stdout, done.stdout + done.stderr
    prompt = asked[-1][-1]["content"]
    assert "assistant: Go away." in prompt and "Question: Is the agent polite?" in prompt, json.dumps(asked)


@pytest.mark.server
def test_plugin_imports_nothing_until_it_is_used(tmp_path: Path) -> None:
    """pytest imports it in every project of the environment."""
    code = (
        "import sys, rejoinder.pytest_plugin;"
        "heavy = ('numpy', 'rejoinder.agent', 'pydantic');"
        "assert not [name for name in sys.modules if name.startswith(heavy)]"
    )
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, cwd=tmp_path)


@pytest.mark.parametrize("answer", ["maybe", ""])
def test_judge_that_says_neither_yes_nor_no_is_an_error(answer: str) -> None:
    with pytest.raises(ModelError, match="neither YES nor NO"):
        asyncio.run(judge(ScriptedLlm([answer], first=0.0), [], "Polite?"))
