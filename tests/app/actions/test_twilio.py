"""Call actions on Twilio: the real server, a caller behind a slow line, and Twilio's REST interface."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from support.callers.carriers import TwilioSim
from support.callers.phone import Caller, calling, served
from support.servers.carrier_rest import CarrierRest, Seen, carrier_rest, twilio
from support.servers.chat import chat_server
from support.servers.operator import WORDS, Operator

from rejoinder.agent.app.actions import hang_up, transfer_to
from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.call import Call
from rejoinder.agent.server.own_server import free_port
from rejoinder.agent.wires.phone.control.api import basic
from rejoinder.agent.wires.phone.line import signature

pytestmark = pytest.mark.server

TOKEN = "12345"
ACCOUNT = "AC" + "0" * 32
CALL = "CA" + "0" * 32
THIRD = "CA" + "f" * 32
CALLS = f"/2010-04-01/Accounts/{ACCOUNT}/Calls"
SALES = "+4930123456"


def loud(rate: int) -> bytes:
    return np.random.default_rng(0).normal(0.0, 6000.0, rate).astype("<i2").tobytes()


@dataclass
class Held:
    """One call in progress. unheard: seconds of audio that waited at each of Twilio's requests."""

    caller: Caller
    operator: Operator
    rest: CarrierRest
    ended: list[Call[Any, Any]]
    unheard: list[float]


@asynccontextmanager
async def held(
    operator: Operator, tools: list[Any], states: tuple[str, ...] = (), **more: Any
) -> AsyncIterator[Held]:
    """Hold a signed call whose caller says something; the operator then calls its tool."""
    agent: Agent[None, None] = Agent(tools=tools)
    ended: list[Call[Any, Any]] = []
    agent.on_end(ended.append)
    port = free_port()
    rest = twilio(basic(ACCOUNT, TOKEN), ACCOUNT, list(states))
    flags = {"llm": f"openai:http://127.0.0.1:{port}/v1#m", "twilio_auth_token": TOKEN, **more}
    with chat_server(port, operator.answer):
        async with carrier_rest(rest), served(agent, twilio_url=rest.url, **flags) as (_, url):
            signed = {"X-Twilio-Signature": signature(TOKEN, url.replace("ws:", "wss:"))}
            async with calling(url, TwilioSim(), lag=1.0, headers=signed) as caller:
                unheard: list[float] = []
                rest.before = lambda seen: unheard.append(caller.unheard)
                caller.say(loud(8000))
                yield Held(caller, operator, rest, ended, unheard)


def body(seen: Seen) -> tuple[str, str, dict[str, Any]]:
    return seen.method, seen.path, seen.body


def test_hang_up_follows_the_last_word() -> None:
    async def hold() -> None:
        async with held(Operator("hang_up"), [hang_up]) as call:
            await call.caller.until(lambda: call.ended)
            assert call.caller.unheard == 0.0 and call.caller.seconds_heard > 1.5, "all of it was heard"
            assert call.unheard == [0.0]
            assert [body(one) for one in call.rest.seen] == [
                ("POST", f"{CALLS}/{CALL}.json", {"Status": "completed"})
            ]
            assert call.ended[0].ended == "the agent has ended the call"
            said = [one["content"] for one in call.ended[0].transcript if one["role"] == "assistant"]
            assert said == [WORDS], "the history has all of it"
            assert len(call.operator.prompts) == 1, "it says nothing after its goodbye"

    asyncio.run(hold())


def test_blind_transfer() -> None:
    async def hold() -> None:
        tool = transfer_to({"sales": SALES})
        async with held(Operator("transfer", to="sales"), [tool]) as call:
            await call.caller.until(lambda: call.ended)
            twiml = f"<Response><Dial><Number>{SALES}</Number></Dial></Response>"
            assert [body(one) for one in call.rest.seen] == [
                ("POST", f"{CALLS}/{CALL}.json", {"Twiml": twiml})
            ]
            assert call.unheard == [0.0] and call.caller.seconds_heard > 1.5
            assert call.ended[0].ended == f"transferred to {SALES}"
            assert len(call.operator.prompts) == 1

    asyncio.run(hold())


def test_warm_transfer_is_announced_while_the_caller_waits() -> None:
    """The person answers at the third look; until then the caller is with the agent."""

    async def hold() -> None:
        tool = transfer_to({"sales": SALES}, warm=True)
        operator = Operator("transfer", to="sales", briefing="Ada asks for her order.")
        states = ("ringing", "ringing", "in-progress")
        async with held(operator, [tool], states, phone_number="+49401234") as call:
            await call.caller.until(lambda: call.ended)
            asked = [(one.method, one.path.rpartition("/")[2]) for one in call.rest.seen]
            assert asked == [
                ("POST", "Calls.json"),
                *3 * [("GET", f"{THIRD}.json")],
                ("POST", f"{CALL}.json"),
            ]
            assert call.rest.seen[0].body["Twiml"].startswith("<Response><Say>Ada asks for her order.</Say>")
            assert call.ended[0].ended == f"transferred to {SALES}"

    asyncio.run(hold())


def test_model_is_told_that_nobody_answered_and_the_caller_stays() -> None:
    async def hold() -> None:
        tool = transfer_to({"sales": SALES}, warm=True)
        operator = Operator("transfer", to="sales", briefing="Ada asks.")
        async with held(operator, [tool], ("ringing", "busy"), phone_number="+49401234") as call:
            await call.caller.until(lambda: call.operator.results)
            assert call.operator.results[0].startswith("Nobody answered there.")
            before = call.caller.seconds_heard
            await call.caller.until(lambda: call.caller.seconds_heard > before + 1.0)
            assert not call.ended

    asyncio.run(hold())


def test_call_that_reaches_its_longest_duration_is_hung_up_at_the_carrier() -> None:
    """On lines such as Telnyx's the call would go on without the stream."""

    async def hold() -> None:
        async with held(Operator("nothing"), [hang_up], max_call_s="3") as call:
            await call.caller.until(lambda: call.ended, 30)
            assert body(call.rest.seen[-1]) == ("POST", f"{CALLS}/{CALL}.json", {"Status": "completed"})
            assert "longest duration" in call.ended[0].ended

    asyncio.run(hold())


def test_synchronous_tool_hangs_up_from_its_thread() -> None:
    def goodbye(call: Call[None, None]) -> str:
        """Say goodbye."""
        call.hang_up("done")
        return "Bye."

    async def hold() -> None:
        async with held(Operator("goodbye"), [goodbye]) as call:
            await call.caller.until(lambda: call.ended)
            assert call.ended[0].ended == "done" and call.unheard == [0.0]

    asyncio.run(hold())
