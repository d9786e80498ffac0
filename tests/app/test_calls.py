"""An agent that answers calls of a real server: what it is told, what it chooses, and whom it refuses."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from support.callers.carriers import TwilioSim
from support.callers.phone import calling, served
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.call import Call

pytestmark = pytest.mark.server


def test_hook_is_told_who_calls_and_no_keys() -> None:
    calls: list[Call] = []
    agent: Agent[None, None] = Agent()
    agent.on_call(calls.append)

    async def hold() -> None:
        async with served(agent=agent) as (_, url):
            headers = {"X-Tenant": "mario", "Authorization": "Bearer secret"}
            async with connect(f"{url}?shop=7&key=secret", proxy=None, additional_headers=headers) as socket:
                for frame in TwilioSim().start():
                    message = json.loads(frame)
                    message.get("start", {})["customParameters"] = {"from": "+3221234567", "to": "+3229"}
                    await socket.send(json.dumps(message))
                async with asyncio.timeout(20):
                    while not calls:  # noqa: ASYNC110 - a hook has no event
                        await asyncio.sleep(0.02)

    asyncio.run(hold())
    info = calls[0].info
    assert info.wire == "Twilio" and info.id.startswith("CA")
    assert info.query == {"shop": "7"} and info.headers["x-tenant"] == "mario"
    assert "secret" not in str(info)
    assert (info.caller, info.called) == ("+3221234567", "+3229")
    assert info.metadata == {"from": "+3221234567", "to": "+3229"} and calls[0].ended


@pytest.mark.parametrize("wire", ["realtime", "pcm"])
def test_refused_call_is_closed_with_the_reason(wire: str) -> None:
    agent: Agent[None, None] = Agent()

    @agent.on_call
    def refuse(call: Call) -> None:
        call.refuse("we are closed on Mondays")

    async def hold() -> None:
        async with served(agent=agent) as (program, url):
            async with connect(url.replace("phone", wire), proxy=None) as socket:
                with pytest.raises(ConnectionClosed) as closed:
                    while True:
                        await socket.recv()
                assert closed.value.rcvd
                assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (
                    1008,
                    "we are closed on Mondays",
                )
            assert not program.calls

    asyncio.run(hold())


def test_call_has_the_models_that_the_hook_chose() -> None:
    agent: Agent[None, None] = Agent(models={"french": {"llm": "scripted:llm|Bonjour."}})

    @agent.on_call
    def choose(call: Call) -> None:
        call.models = "french" if call.info.query.get("in") == "fr" else ""

    async def first_words(url: str) -> str:
        async with connect(url, proxy=None) as socket:
            await socket.send(json.dumps({"type": "text", "text": "Hello?"}))
            async with asyncio.timeout(20):
                while True:
                    frame: Any = await socket.recv()
                    event = json.loads(frame) if isinstance(frame, str) else {}
                    if event.get("type") == "reply_text":
                        return str(event["text"])

    async def hold() -> None:
        async with served(agent=agent, llm="scripted:llm|Hello.") as (_, url):
            pcm = url.replace("phone", "pcm")
            assert await first_words(pcm) == "Hello."
            assert await first_words(f"{pcm}?in=fr") == "Bonjour."

    asyncio.run(hold())


def test_lines_are_counted_while_the_agent_decides() -> None:
    """Calls wait in ``on_call``; no more of them get through than there are lines."""
    agent: Agent[None, None] = Agent()
    opened = asyncio.Event()

    @agent.on_call
    async def wait(call: Call) -> None:
        await opened.wait()

    async def hold() -> None:
        async with served(agent=agent, max_sessions=1) as (_, url):
            pcm = url.replace("phone", "pcm")
            async with connect(pcm, proxy=None) as one, connect(pcm, proxy=None) as other:
                with pytest.raises(ConnectionClosed) as closed:
                    await other.recv()
                assert closed.value.rcvd and closed.value.rcvd.reason == "all 1 lines are busy"
                opened.set()
                assert json.loads(await one.recv())["type"] == "ready"

    asyncio.run(hold())


def test_caller_that_speaks_gets_the_agents_greeting_on_the_telephone() -> None:
    agent: Agent[None, None] = Agent(greeting="Mario's, how can I help?")

    async def hold() -> None:
        async with served(agent=agent) as (_, url), calling(url, TwilioSim()) as caller:
            await caller.until(lambda: caller.seconds_heard > 1.0)

    asyncio.run(hold())


def test_typed_words_are_a_turn_of_the_caller() -> None:
    agent: Agent[None, None] = Agent()
    turns: list[str] = []

    @agent.on_turn
    def note(call: Call, words: str) -> None:
        turns.append(words)

    async def hold() -> None:
        async with (
            served(agent=agent) as (_, url),
            connect(url.replace("phone", "pcm"), proxy=None) as socket,
        ):
            await socket.send(json.dumps({"type": "text", "text": "Hello?"}))
            async with asyncio.timeout(20):
                while not turns:  # noqa: ASYNC110 - a hook has no event
                    await asyncio.sleep(0.02)

    asyncio.run(hold())
    assert turns == ["Hello?"]
