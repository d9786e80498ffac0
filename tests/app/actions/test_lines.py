"""Call actions on every line but Twilio's: the real server, a simulated line, and the REST behind it."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import numpy as np
import pytest
from support.callers.asterisk import calling as asterisk_calling
from support.callers.carriers import AsteriskSim, ExotelSim, TelnyxSim, TwilioSim
from support.callers.phone import calling, served
from support.servers.carrier_accounts import (
    FOR_ASTERISK,
    FOR_PLIVO,
    FOR_TELNYX,
    FOR_TWILIO,
    FOR_VONAGE,
    SALES,
    told,
)
from support.servers.carrier_rest import carrier_rest
from support.servers.chat import chat_server
from support.servers.operator import Operator
from support.serving import PATIENCE
from websockets.asyncio.client import connect

import rejoinder.client
from rejoinder.agent.app.actions import hang_up, send_digits, transfer_to
from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.call import Call
from rejoinder.agent.app.tones import TONE_RATE, tones
from rejoinder.agent.server.own_server import free_port
from rejoinder.agent.wires.phone.line import signature

pytestmark = pytest.mark.server


def loud(rate: int) -> bytes:
    return np.random.default_rng(0).normal(0.0, 6000.0, rate).astype("<i2").tobytes()


Ended = list[Call[Any, Any]]


@asynccontextmanager
async def answering(operator: Operator, tool: Any, **flags: Any) -> AsyncIterator[tuple[str, Ended]]:
    """Serve an agent with one tool; yield the address of its phone, and the calls that have ended."""
    agent: Agent[None, None] = Agent(tools=[tool])
    ended: Ended = []

    @agent.on_end
    async def note(call: Call) -> None:  # on the loop, so it has run when the client sees the end
        ended.append(call)

    port = free_port()
    with chat_server(port, operator.answer):
        async with served(agent, llm=f"openai:http://127.0.0.1:{port}/v1#m", **flags) as (_, url):
            yield url, ended


@pytest.mark.parametrize(
    ("case", "to", "last"),
    [
        (FOR_TELNYX, SALES, ("POST", "transfer")),
        (FOR_PLIVO, SALES, ("POST", "")),
        (FOR_VONAGE, SALES, ("PUT", "63f61863-4a51-4f6b-86e1-46edebcf9356")),
        (FOR_ASTERISK, "200", ("POST", "continue")),
    ],
    ids=["Telnyx", "Plivo", "Vonage", "Asterisk"],
)
def test_transfer_follows_the_last_word(case: Any, to: str, last: tuple[str, str]) -> None:
    make, sim, setting, flags = case
    rest = make()

    async def hold() -> None:
        operator, tool = Operator("transfer", to="sales"), transfer_to({"sales": to})
        async with (
            carrier_rest(rest),
            answering(operator, tool, **{setting: rest.url}, **flags) as (url, ended),
        ):
            line = sim()
            async with calling(url, line, lag=0.5) as caller:
                unheard: list[float] = []
                rest.before = lambda seen: unheard.append(caller.unheard)
                caller.say(loud(line.rate))
                await caller.until(lambda: ended)
                assert not any(unheard) and caller.seconds_heard > 1.5
            method, path, body = told(rest.seen)[-1]
            assert (method, path.rpartition("/")[2]) == last
            assert ended[0].ended == f"transferred to {to}"
            if setting == "plivo_url":  # it fetches the XML from the server itself
                here = url.replace("ws:", "http:").removesuffix("/v1/phone")
                address = body["aleg_url"].replace("https://agent.example.com", here)
                async with httpx2.AsyncClient(trust_env=False) as plivo:
                    answer = await plivo.get(address)
                    assert (await plivo.get(address + "x")).status_code == 404
                assert answer.headers["content-type"].startswith("application/xml")
                assert f"<Number>{SALES}</Number>" in answer.text

    asyncio.run(hold())


@pytest.mark.parametrize(
    ("case", "last"),
    [
        (FOR_TWILIO, ("POST", {"Status": "completed"})),
        (FOR_TELNYX, ("POST", "hangup")),
        (FOR_PLIVO, ("DELETE", {})),
        (FOR_VONAGE, ("PUT", {"action": "hangup"})),
        (FOR_ASTERISK, ("DELETE", {})),
    ],
    ids=["Twilio", "Telnyx", "Plivo", "Vonage", "Asterisk"],
)
def test_line_of_a_refused_call_is_ended(case: Any, last: tuple[str, Any]) -> None:
    make, sim, setting, flags = case
    rest = make()
    agent: Agent[None, None] = Agent()

    @agent.on_call
    def refuse(call: Call[None, None]) -> None:
        call.refuse("this number is blocked")

    async def hold() -> None:
        async with carrier_rest(rest), served(agent, **{setting: rest.url}, **flags) as (_, url):
            signed = {"X-Twilio-Signature": signature("t", url.replace("ws:", "wss:"))}
            async with calling(url, sim(), headers=signed) as caller:
                await caller.socket.wait_closed()
        method, path, body = told(rest.seen)[-1]
        if sim is TelnyxSim:
            assert body.pop("command_id") and body == {}
            body = path.rpartition("/")[2]
        assert (method, body) == last and (caller.asked == ["hang up"]) is (sim is AsteriskSim)
        assert caller.socket.close_code == 1008
        assert caller.socket.close_reason == "this number is blocked"

    asyncio.run(hold())


def test_chan_websocket_hangs_up_by_its_command() -> None:
    async def hold() -> None:
        async with answering(Operator("hang_up"), hang_up) as (url, ended):
            async with calling(url, AsteriskSim(), lag=0.5) as caller:
                caller.say(loud(16000))
                await caller.until(lambda: "hang up" in caller.asked)
                assert caller.unheard == 0.0 and caller.seconds_heard > 1.5
                await caller.until(lambda: ended)

    asyncio.run(hold())


def test_audiosocket_hangs_up_after_the_last_word() -> None:
    async def hold() -> None:
        port = free_port()
        async with answering(Operator("hang_up"), hang_up, audiosocket_port=port) as (_, ended):
            async with asterisk_calling(port) as caller:
                caller.loud(1.0)
                await caller.until(lambda: caller.hung_up)
                assert caller.seconds_heard > 1.5
                await caller.until(lambda: ended)

    asyncio.run(hold())


@pytest.mark.parametrize("sim", [TwilioSim, ExotelSim], ids=lambda sim: sim.name)
def test_digits_reach_the_line_as_tones(sim: type[TwilioSim]) -> None:
    """Without a command for digits, and without credentials, the tones of both keys are in the audio."""

    wanted = tones("42").int16().astype(np.float64)

    def likeness(ear: bytes) -> float:
        heard = np.frombuffer(ear, "<i2").astype(np.float64)
        found = np.correlate(heard, wanted, "valid")
        at = int(found.argmax())
        piece = heard[at : at + len(wanted)]
        return float(found[at] / (np.linalg.norm(piece) * np.linalg.norm(wanted)))

    async def hold() -> None:
        async with answering(Operator("send_digits", digits="42"), send_digits) as (url, _):
            async with calling(url, sim()) as caller:
                assert caller.sim.rate == TONE_RATE
                caller.say(loud(8000))
                await caller.until(lambda: caller.seconds_heard > 1.5)
                async with asyncio.timeout(PATIENCE):
                    while likeness(bytes(caller.ear)) <= 0.98:  # noqa: ASYNC110 - an ear has no event
                        await asyncio.sleep(0.5)

    asyncio.run(hold())


def test_telnyx_presses_digits_by_its_command() -> None:
    make, sim, setting, flags = FOR_TELNYX
    rest = make()

    async def hold() -> None:
        operator = Operator("send_digits", digits="42#")
        async with (
            carrier_rest(rest),
            answering(operator, send_digits, **{setting: rest.url}, **flags) as (url, _),
        ):
            async with calling(url, sim()) as caller:
                caller.say(loud(8000))
                await caller.until(lambda: rest.seen)
        [(_, path, body)] = told(rest.seen)
        assert path.endswith("/send_dtmf") and body["digits"] == "42#"

    asyncio.run(hold())


async def answers(url: str, query: str) -> tuple[list[dict[str, Any]], str]:
    """Hold a Realtime call; return the actions that the client gets, and why the call ended."""
    actions: list[dict[str, Any]] = []
    said = ""
    address = url.replace("phone", "realtime") + query
    try:
        async with rejoinder.client.connect(address, reconnect_s=0.0) as call, asyncio.timeout(PATIENCE):
            await call.send_audio(loud(24000) + bytes(2 * 24000 * 2), 24000)
            async for event in call:
                if isinstance(event, rejoinder.client.Other) and event.type == "rejoinder.call_action":
                    actions.append(event.raw)
                if isinstance(event, rejoinder.client.AgentSaid):
                    said = event.text
                    if said.startswith("Told"):
                        return actions, said
    except rejoinder.client.CallLost as lost:
        return actions, str(lost)
    return actions, said


def test_realtime_client_that_carries_out_actions_gets_them() -> None:
    async def hold() -> None:
        tool = transfer_to({"sales": SALES}, warm=True)
        operator = Operator("transfer", to="sales", briefing="Ada asks.")
        async with answering(operator, tool) as (url, ended):
            actions, _ = await answers(url, "?actions=true")
            [action] = actions
            assert {name: action[name] for name in ("action", "to", "briefing")} == {
                "action": "transfer",
                "to": SALES,
                "briefing": "Ada asks.",
            }
            assert ended[0].ended == f"transferred to {SALES}"

    asyncio.run(hold())


def test_realtime_client_that_does_not_is_no_line_that_transfers() -> None:
    async def hold() -> None:
        async with answering(Operator("transfer", to="sales"), transfer_to({"sales": SALES})) as (url, _):
            actions, said = await answers(url, "")
            assert not actions and said == "Told: This line cannot transfer calls."

    asyncio.run(hold())


def test_realtime_client_reads_why_the_agent_hung_up() -> None:
    async def hold() -> None:
        async with answering(Operator("hang_up"), hang_up) as (url, ended):
            sound = base64.b64encode(loud(24000) + bytes(2 * 24000 * 2)).decode()
            async with connect(url.replace("phone", "realtime"), proxy=None, max_size=None) as socket:
                await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": sound}))
                events = [json.loads(frame)["type"] async for frame in socket]
            assert (socket.close_code, socket.close_reason) == (1000, "the agent has ended the call")
            assert "error" not in events and ended

    asyncio.run(hold())
