"""Tests of the restaurant with the pytest plugin, as docs/guides/simulate.md shows them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from support.paths import EXAMPLES
from support.servers.chat import chat_server, token

from rejoinder.agent.app.loading import load_agent
from rejoinder.agent.server.own_server import free_port

agent = load_agent(str(EXAMPLES / "restaurant.py"), again=True)
SimulatedCall = Callable[..., Any]


@pytest.fixture(autouse=True)
def database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESTAURANT_DB", str(tmp_path / "db.sqlite"))


def test_a_table_is_booked(simulated_call: SimulatedCall) -> None:
    replies = ['@book {"people": 4, "at": "2026-11-27T19:00", "name": "Anna"}', "Booked."]
    call = simulated_call(agent, replies).says("a table for four on Friday").hears_out().call()
    call.called("book", people=4)
    assert call.heard[-1] == "Booked."


@pytest.fixture(autouse=True)
def judging(request: pytest.FixtureRequest) -> Iterator[None]:
    """Configure a judge, as ``--judge`` does: a server that looks for an offer."""

    def answer(handler: BaseHTTPRequestHandler, messages: list[dict[str, Any]]) -> None:
        said = "YES" if "we have one at" in messages[-1]["content"].lower() else "NO: it offers nothing"
        handler.wfile.write(token(said) + token(None, "stop") + b"data: [DONE]\n\n")

    port, option = free_port(), request.config.option
    given, option.judge = option.judge, f"openai:http://127.0.0.1:{port}/v1#judge"
    with chat_server(port, answer):
        yield
    option.judge = given


def test_the_agent_is_polite(simulated_call: SimulatedCall, judge: Callable[..., Any]) -> None:
    call = simulated_call(agent, ["We have no table left."]).says("a table for four").hears_out().call()
    assert not judge(call, "Does the agent offer another time?")
