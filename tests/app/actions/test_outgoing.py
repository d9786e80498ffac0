"""An outgoing call from its command to its goodbye, through the carrier and the agent."""

from __future__ import annotations

import asyncio
import re
from typing import Any, ClassVar
from xml.etree import ElementTree

import numpy as np
import pytest
from support.callers.carriers import TwilioSim
from support.callers.phone import calling, served
from support.servers.carrier_accounts import ACCOUNT, FOR_TWILIO, SALES
from support.servers.carrier_rest import carrier_rest
from typer.testing import CliRunner

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.call import Call
from rejoinder.agent.cli.app import app
from rejoinder.agent.wires.phone.line import signature

pytestmark = pytest.mark.server


class Called(TwilioSim):
    """Twilio, which passes the parameters of the TwiML."""

    parameters: ClassVar[dict[str, str]] = {}


def test_agent_reminds_somebody_and_hangs_up(monkeypatch: pytest.MonkeyPatch) -> None:
    agent: Agent[None, None] = Agent("You remind people of their table.")
    ended: list[Call[Any, Any]] = []
    agent.on_end(ended.append)

    @agent.on_call
    def remind(call: Call[None, None]) -> None:
        call.greeting = f"Your table for {call.info.metadata['people']} is ready."

    @agent.on_turn
    def goodbye(call: Call[None, None], words: str) -> None:
        call.hang_up("reminded")

    make, _, setting, flags = FOR_TWILIO
    rest = make()

    async def hold() -> None:
        async with carrier_rest(rest), served(agent, **{setting: rest.url}, **flags) as (_, url):
            public = "https" + url.removeprefix("ws").removesuffix("/v1/phone")
            settings = {"public_url": public, "phone_number": "+49401234", "twilio_account_sid": ACCOUNT}
            for name, value in {**settings, **flags, setting: rest.url}.items():
                monkeypatch.setenv(f"REJOINDER_{name.upper()}", value)
            words = ["call", SALES, "--via", "twilio", "--parameter", "people=4"]
            made = await asyncio.to_thread(CliRunner().invoke, app, words)
            assert made.exit_code == 0 and re.fullmatch(rf"twilio calls \{SALES}: CA\w{{32}}\n", made.output)
            twiml = ElementTree.fromstring(rest.seen[0].body["Twiml"])
            stream = twiml.find("Connect/Stream")
            assert stream is not None and stream.attrib["url"] == url.replace("ws:", "wss:")
            Called.parameters = {one.attrib["name"]: one.attrib["value"] for one in stream.iter("Parameter")}
            signed = {"X-Twilio-Signature": signature("t", stream.attrib["url"])}
            async with calling(url, Called(), lag=0.3, headers=signed) as caller:
                await caller.until(lambda: caller.seconds_heard > 1.5)  # all of the greeting but the end
                await asyncio.sleep(0.5)
                caller.say(np.random.default_rng(0).normal(0.0, 6000.0, 8000).astype("<i2").tobytes())
                await caller.until(lambda: ended)
                assert caller.unheard == 0.0
        said = [one["content"] for one in ended[0].transcript if one["role"] == "assistant"]
        assert said[0] == "Your table for 4 is ready." and ended[0].ended == "reminded"
        assert [one.body for one in rest.seen[1:]] == [{"Status": "completed"}]

    asyncio.run(hold())
