"""An agent whose set of models has a list of language models: where one fails, the next one answers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from support.callers.phone import served
from support.servers.faulty import WORDS, faulty_server
from websockets.asyncio.client import connect

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.call import Call
from rejoinder.agent.server.own_server import free_port
from rejoinder.agent.simulate.scenario import Talk
from rejoinder.models.llm.failover.candidate import Candidate
from rejoinder.models.llm.failover.failover import Failover
from rejoinder.models.scripted import ScriptedLlm
from rejoinder.pipeline import Models, ReplyDone, Session, TurnTraced


def choosing(*llm: str) -> Agent[None, None]:
    """Return an agent whose calls all have its own models."""
    agent: Agent[None, None] = Agent(models={"own": {"llm": list(llm)}})

    @agent.on_call
    def choose(call: Call) -> None:
        call.models = "own"

    return agent


def test_list_is_one_text_for_the_server() -> None:
    assert choosing("big", "scripted:llm").models == {"own": {"llm": "big, scripted:llm"}}


@pytest.mark.parametrize("fails_after", [0, 2])
@pytest.mark.parametrize("handed", [False, True])
def test_second_model_answers_for_the_first(fails_after: int, handed: bool) -> None:
    first, second = ScriptedLlm([WORDS], fail_after=fails_after), ScriptedLlm([WORDS])
    own = choosing("big", "small")
    agent = Agent(agents=[own]) if handed else own
    talk = Talk(agent=agent)
    host = talk._host
    assert host is not None
    failover = Failover([Candidate("big", first), Candidate("small", second)])
    host.variants["own"] = Models(talk.vad, talk.stt, failover, talk.tts, talk.turn_model, talk.load_shedder)

    async def hand_over(session: Session) -> None:
        await talk.call.hand_to(own)

    if handed:
        talk.does(hand_over, at=0.2)
    talk.says(0.6, at=0.8)
    talk.run(8.0)
    (done,) = talk.of(ReplyDone)
    assert (done.status, done.heard) == ("completed", WORDS)
    assert (len(first.prompts), len(second.prompts)) == (1, 1)
    assert talk.of(TurnTraced)[-1].trace.models == (["big", "small"] if fails_after else ["small"])


@pytest.mark.server
@pytest.mark.parametrize("fault", ["500", "killed in mid-sentence"])
def test_second_model_answers_for_the_first_on_a_real_wire(fault: str) -> None:
    async def hold() -> None:
        with faulty_server(free_port()) as big:
            agent = choosing(f"openai:{big.url}#m", f"scripted:llm|{WORDS}")
            async with served(agent=agent, llm="scripted:llm|Not me.") as (_, url):
                assert len(big.seen) == 1, "it was asked for one token while the models were loaded"
                big.fault = fault
                assert (await answer(url)).split() == WORDS.split()
                assert len(big.seen) == 2
                big.fault = ""
                assert (await answer(url)).split() == WORDS.split()

    asyncio.run(hold())


async def answer(url: str) -> str:
    """Return the words of the first reply to a typed question."""
    async with connect(url.replace("phone", "pcm"), proxy=None) as socket, asyncio.timeout(20):
        await socket.send(json.dumps({"type": "text", "text": "Is it so?"}))
        words = ""
        while True:
            frame: Any = await socket.recv()
            event = json.loads(frame) if isinstance(frame, str) else {}
            if event.get("type") == "reply_text":
                words += event["text"] + " "
            elif event.get("type") == "reply_ended":
                assert not event.get("error"), event
                return words
