"""Fillers over real sockets: a stock Realtime client, and a telephone with a real voice and recogniser."""

from __future__ import annotations

import asyncio
import base64
from typing import Any

import pytest
from openai import AsyncOpenAI
from support import speech
from support.callers.carriers import TwilioSim
from support.callers.phone import REAL, calling, plain, question, served, transcribed
from support.serving import PATIENCE

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.call import Call
from rejoinder.models.scripted import SECONDS_PER_CHARACTER
from rejoinder.models.tts.phrases import PhraseVoice

pytestmark = pytest.mark.server

CALLS = 'scripted:llm|@weather {"city": "Rome"}|It is sunny.'
FILLER = "One moment."


def forecaster(seconds: float) -> Agent[None, None]:
    """Return an agent whose tool takes ``seconds``."""
    agent: Agent[None, None] = Agent(fillers=(FILLER,))

    @agent.tool
    async def weather(call: Call, city: str) -> str:
        """Tell the weather."""
        await asyncio.sleep(seconds)
        return "sunny"

    return agent


async def events_of_a_turn(url: str) -> list[Any]:
    """Ask by text through openai-python; return the events up to the end of the second response."""
    base = url.removesuffix("/phone").removeprefix("ws")
    client = AsyncOpenAI(api_key="none", base_url=f"http{base}", websocket_base_url=f"ws{base}")
    async with client, client.realtime.connect(model="default") as connection:
        words = {"type": "input_text", "text": "What is the weather?"}
        await connection.conversation.item.create(
            item={"type": "message", "role": "user", "content": [words]}  # type: ignore[typeddict-item]
        )
        await connection.response.create()
        events: list[Any] = []
        async with asyncio.timeout(PATIENCE):
            while [event.type for event in events].count("response.done") < 2:
                events.append(await connection.recv())
        await connection.conversation.item.truncate(
            item_id=events[-1].response.output[0].id,
            content_index=0,
            audio_end_ms=int(1000 * SECONDS_PER_CHARACTER * (len(FILLER) + len("It is"))) + 5,
        )
        await connection.conversation.item.retrieve(item_id=events[-1].response.output[0].id)
        async with asyncio.timeout(PATIENCE):
            while events[-1].type != "conversation.item.retrieved":
                events.append(await connection.recv())
        return events


def test_stock_client_gets_one_response_with_filler_and_answer() -> None:
    """The filler is the first audio of the response that answers, and no word of its transcript."""

    async def hold() -> list[Any]:
        async with served(agent=forecaster(1.5), llm=CALLS) as (_, url):
            return await events_of_a_turn(url)

    events = asyncio.run(hold())
    assert not [event for event in events if event.type == "error"]
    created = [event.response.id for event in events if event.type == "response.created"]
    done = [event for event in events if event.type == "response.done"]
    assert [event.response.id for event in done] == created, "one after the other"
    assert [event.response.status for event in done] == ["completed", "completed"]
    own = [event for event in events if getattr(event, "response_id", None) == created[1]]
    assert [event.type for event in own if "delta" not in event.type] == [
        "response.output_item.added",
        "response.content_part.added",
        "response.output_audio.done",
        "response.output_audio_transcript.done",
        "response.content_part.done",
        "response.output_item.done",
    ]
    deltas = [event for event in own if event.type == "response.output_audio.delta"]
    spoken = sum(len(base64.b64decode(event.delta)) for event in deltas) / 48_000
    expected = (len(FILLER) + len("It is sunny.")) * SECONDS_PER_CHARACTER
    assert spoken == pytest.approx(expected, abs=0.03)
    assert done[1].response.output[0].content[0].transcript == "It is sunny."
    # The client counts the filler, too, and the words that it heard are exact.
    assert events[-1].item.content[0].transcript == "It is"


@pytest.mark.weights
def test_caller_on_the_telephone_hears_a_filler_and_the_answer() -> None:
    speech.need(*REAL.values())

    async def hold() -> None:
        async with served(agent=forecaster(2.0), **REAL, llm=CALLS) as (program, url):
            assert program.models is not None and isinstance(program.models.tts, PhraseVoice)
            sim = TwilioSim()
            async with calling(url, sim) as caller, asyncio.timeout(4 * PATIENCE):
                prompts, now = program.models.llm.prompts, asyncio.get_running_loop().time
                caller.say(question(sim.rate))
                await caller.until(lambda: not caller._mouth)
                asked = now()
                await caller.until(lambda: prompts[-1][-1]["content"] == "sunny", 2 * PATIENCE)
                waited = now() - asked  # the tool alone takes two seconds
                (call,) = program.calls
                heard = ""
                while not heard.endswith("sunny"):
                    await asyncio.sleep(1.0)
                    heard = plain(await transcribed(program, bytes(caller.ear), sim.rate))
            assert "moment" in heard, heard
            assert FILLER not in str(prompts)
        assert 0.0 < call.log.longest_silence < waited, "the filler is no silence"

    asyncio.run(hold())
