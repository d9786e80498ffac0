"""An agent on the wires of a real server: what its hooks get, which calls it refuses, and how it hangs up."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from support.callers.asterisk import calling as asterisk_calling
from support.callers.carriers import SIMS, TwilioSim
from support.callers.phone import calling, served
from support.ports import unused_port
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.call import Call
from rejoinder.pipeline import Endpointing, turn_taking

pytestmark = pytest.mark.server

GOODBYE = "It was a pleasure, goodbye."


def leaver() -> tuple[Agent, list[str]]:
    agent, ended = Agent(), list[str]()

    @agent.tool
    async def leave(call: Call) -> None:
        """End the call."""
        await call.hang_up(say=GOODBYE, reason="all is said")

    @agent.on_end
    async def note(call: Call) -> None:
        ended.append(call.ended)
        ended.append(str(call.transcript[-1]["content"]))

    return agent, ended


def loud(rate: int) -> bytes:
    return np.random.default_rng(0).normal(0.0, 6000.0, rate).astype("<i2").tobytes()


async def until_closed(socket: ClientConnection) -> ConnectionClosed:
    """Receive until the server closes the socket."""
    async with asyncio.timeout(30):
        try:
            while True:
                await socket.recv()
        except ConnectionClosed as closed:
            return closed


def test_hook_is_told_who_calls_and_no_keys() -> None:
    calls: list[Call] = []
    agent = Agent()
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
    agent = Agent()

    @agent.on_call
    def refuse(call: Call) -> None:
        call.refuse("we are closed on Mondays")

    async def hold() -> None:
        async with served(agent=agent) as (program, url):
            async with connect(url.replace("phone", wire), proxy=None) as socket:
                closed = (await until_closed(socket)).rcvd
                assert closed and (closed.code, closed.reason) == (1008, "we are closed on Mondays")
            assert not program.calls

    asyncio.run(hold())


def test_hook_changes_what_a_realtime_client_sees_and_may_change() -> None:
    agent = Agent("Speak English.")

    @agent.on_call
    def german(call: Call) -> None:
        call.instructions = "Sprich Deutsch."

    async def hold() -> tuple[str, str]:
        async with (
            served(agent=agent) as (_, url),
            connect(url.replace("phone", "realtime"), proxy=None) as socket,
        ):
            created = json.loads(await socket.recv())
            await socket.send(
                json.dumps({"type": "session.update", "session": {"instructions": "Be brief."}})
            )
            while (event := json.loads(await socket.recv()))["type"] != "session.updated":
                pass
            return created["session"]["instructions"], event["session"]["instructions"]

    assert asyncio.run(hold()) == ("Sprich Deutsch.", "Be brief.")


def test_a_client_that_changes_other_settings_keeps_the_agents_turn_taking() -> None:
    agent, calls = Agent("Speak English."), list[Call]()
    agent.on_call(calls.append)
    slower = {"type": "server_vad", "silence_duration_ms": 900}

    async def hold() -> list[Endpointing]:
        found = []
        async with (
            served(agent=agent) as (_, url),
            connect(url.replace("phone", "realtime"), proxy=None) as socket,
        ):
            await socket.recv()
            calls[0].take_turns("patient")
            for change in ({"instructions": "Be brief."}, {"audio": {"input": {"turn_detection": slower}}}):
                await socket.send(json.dumps({"type": "session.update", "session": change}))
                while json.loads(await socket.recv())["type"] != "session.updated":
                    pass
                found.append(calls[0].options.endpointing)
        return found

    kept, changed = asyncio.run(hold())
    assert kept == turn_taking("patient")
    assert (changed.min_wait_ms, changed.max_wait_ms) == (900, 900), "the client's own choice"


def test_call_has_the_models_that_the_hook_chose() -> None:
    agent = Agent(models={"french": {"llm": "scripted:llm|Bonjour."}})

    @agent.on_call
    async def choose(call: Call) -> None:
        call.models = "french" if call.info.query.get("in") == "fr" else ""

    async def first_words(url: str) -> str:
        async with connect(url, proxy=None) as socket, asyncio.timeout(20):
            await socket.send(json.dumps({"type": "conversation.item.create", "item": HELLO}))
            await socket.send(json.dumps({"type": "response.create"}))
            event: dict[str, Any] = {}
            while event.get("type") != "response.output_audio_transcript.done":
                event = json.loads(await socket.recv())
            return str(event["transcript"])

    async def hold() -> None:
        async with served(agent=agent, llm="scripted:llm|Hello.") as (_, url):
            realtime = url.replace("phone", "realtime")
            assert await first_words(realtime) == "Hello."
            assert await first_words(f"{realtime}?in=fr") == "Bonjour."

    asyncio.run(hold())


def test_lines_are_counted_while_the_agent_decides() -> None:
    agent, opened = Agent(), asyncio.Event()

    @agent.on_call
    async def wait(call: Call) -> None:
        await opened.wait()

    async def hold() -> None:
        async with served(agent=agent, max_sessions=1) as (_, url):
            pcm = url.replace("phone", "pcm")
            async with connect(pcm, proxy=None) as one, connect(pcm, proxy=None) as other:
                closed = (await until_closed(other)).rcvd
                assert closed and closed.reason == "all 1 lines are busy"
                opened.set()
                assert json.loads(await one.recv())["type"] == "ready"

    asyncio.run(hold())


def test_typed_words_are_a_turn_of_the_caller() -> None:
    agent, turns = Agent(), list[str]()

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


HELLO = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello?"}]}
FLAGS: dict[str, Any] = {"stt": "scripted:stt|bye", "llm": "scripted:llm|@leave {}"}


@pytest.mark.parametrize("carrier", SIMS, ids=lambda sim: sim.name)
def test_telephone_rings_off_once_the_carrier_has_played_the_goodbye(carrier: type[TwilioSim]) -> None:
    """Audio needs another second to the caller's ear: only the carrier's marks show that."""
    agent, ended = leaver()

    async def hold() -> None:
        async with served(agent=agent, **FLAGS) as (_, url):
            sim = carrier()
            with suppress(ConnectionClosed):  # the simulator says at the end that it hangs up, too
                async with calling(url, sim, lag=1.0) as caller:
                    caller.say(loud(sim.rate))
                    await caller.until(lambda: ended)
            sent = sum(caller.sizes) / (2 * sim.rate)
            assert sent > 1.0 and caller.seconds_heard > sent - 0.1

    asyncio.run(hold())
    assert ended == ["all is said", GOODBYE]


def test_audiosocket_rings_off_after_the_goodbye() -> None:
    agent, ended = leaver()

    async def hold() -> None:
        port = unused_port()
        async with served(agent=agent, audiosocket_port=port, **FLAGS), asterisk_calling(port) as caller:
            caller.say(loud(8000))
            await caller.until(lambda: ended)
            assert caller.seconds_heard > 1.0

    asyncio.run(hold())
    assert ended == ["all is said", GOODBYE]


@pytest.mark.parametrize("wire", ["realtime", "pcm"])
def test_socket_is_closed_with_the_reason_after_the_goodbye(wire: str) -> None:
    agent, ended = leaver()

    async def hold() -> None:
        async with (
            served(agent=agent, **FLAGS) as (_, url),
            connect(url.replace("phone", wire), proxy=None) as socket,
        ):
            if wire == "pcm":
                await socket.send(json.dumps({"type": "text", "text": "bye"}))
            else:
                said = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "bye"}]}
                await socket.send(json.dumps({"type": "conversation.item.create", "item": said}))
                await socket.send(json.dumps({"type": "response.create"}))
            closed = (await until_closed(socket)).rcvd
            assert closed and (closed.code, closed.reason) == (1000, "all is said")

    asyncio.run(hold())
    assert ended == ["all is said", GOODBYE]
