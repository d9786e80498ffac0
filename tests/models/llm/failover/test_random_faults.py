"""200 calls in virtual time, with two models of which each fails in one request of ten, in every way."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import pytest

from rejoinder.agent.simulate import virtual_clock
from rejoinder.agent.simulate.scenario import Talk
from rejoinder.models.llm.failover.candidate import Candidate
from rejoinder.models.llm.failover.continuation import GO_ON
from rejoinder.models.llm.failover.failover import Failover
from rejoinder.models.scripted import ScriptedLlm
from rejoinder.pipeline import Message, ModelError, ReplyDone, Session

CALLS = 200
TURNS = 5
EVERY_S = 25.0
"""Seconds between two turns of a call."""
SHARE = 0.1
ANSWER = "The first train leaves at nine, and it takes an hour. You can pay with a card."
WORDS = ANSWER.split()
SORRY = "Sorry, I cannot answer now."
LOST = "Sorry, I lost my thread."
BETWEEN_S = 4.0
"""What an adapter waits between two tokens."""
FAULTS = ("dead", "hung", "slow", "dribbles", "empty", "garbage", "dies later", "hangs later", "slow later")


class Unreliable(ScriptedLlm):
    """Says the whole answer or its rest, and fails at random. faults: those that it had."""

    def __init__(self, seed: int) -> None:
        super().__init__([ANSWER])
        self.faults: list[str] = []
        self._random = random.Random(seed)

    def _line(self, messages: Sequence[Message]) -> str:
        last = messages[-2]["content"] if messages[-1]["content"] == GO_ON else messages[-1]["content"]
        begun = len(last.split()) if ANSWER.startswith(last) else 0
        return " ".join(WORDS[begun:])

    async def _say(self, text: str) -> AsyncGenerator[str, None]:
        self.open += 1
        try:
            async for word in self._broken(text.split()):
                yield word
        finally:
            self.open -= 1

    async def _broken(self, words: list[str]) -> AsyncGenerator[str, None]:
        fault = self._random.choice(FAULTS) if self._random.random() < SHARE else ""
        self.faults += [fault] if fault else []
        at = self._random.randrange(1, len(words)) if len(words) > 1 else 0
        if fault in ("dead", "garbage"):
            raise ModelError("scripted", "dead") if fault == "dead" else KeyError("choices")
        await asyncio.sleep(1e6 if fault == "hung" else 10 * self.first if fault == "slow" else self.first)
        for number, word in enumerate([] if fault == "empty" else words):
            if number == at and fault in ("dies later", "hangs later"):
                await asyncio.sleep(BETWEEN_S if fault == "hangs later" else 0.0)
                raise ModelError("scripted", "dead")
            yield word + " "
            slow = fault == "dribbles" or (fault == "slow later" and number >= at)
            await asyncio.sleep(0.9 if slow else self.each)


async def hold(several: Failover, begins_at: float) -> Talk:
    """Hold a call in which the caller asks several times."""
    llm: Any = several
    talk = Talk(llm=llm, apology=SORRY, cut_apology=LOST, speculate=False)

    def ask(session: Session) -> None:
        session.add_text("When is the train?")
        session.respond()

    async def script() -> None:
        await asyncio.sleep(begins_at)
        for _ in range(TURNS):
            ask(talk.session)
            await asyncio.sleep(EVERY_S)

    await talk.hold(script, microphone=False)
    return talk


@pytest.mark.parametrize("seed", range(3))
def test_callers_hear_whole_answers_and_hardly_an_apology(seed: int) -> None:
    async def scenario() -> list[Talk]:
        models = Unreliable(2 * seed), Unreliable(2 * seed + 1)
        several: Any = Failover([Candidate(f"model{number}", one) for number, one in enumerate(models)])
        several.open = 0
        try:
            return await asyncio.gather(*(hold(several, EVERY_S * number / CALLS) for number in range(CALLS)))
        finally:
            await several.aclose()
            assert [one.open for one in models] == [0, 0]
            assert set(models[0].faults) == set(FAULTS) and models[1].faults

    apologies = 0
    for talk in virtual_clock.run(scenario()):
        done = talk.of(ReplyDone)
        assert len(done) == TURNS and talk.hung_up is None, "no call ends"
        assert [words for role, words in talk.said() if role == "assistant"] == [one.heard for one in done]
        for reply in done:
            if reply.status == "completed":
                assert reply.heard.split() == WORDS, "nothing is said twice, and nothing is missing"
                continue
            apology = SORRY if reply.heard.endswith(SORRY) else LOST
            said = reply.heard.removesuffix(apology).split()
            assert (reply.status, said) == ("failed", WORDS[: len(said)])
            apologies += 1
    assert apologies <= CALLS * TURNS / 50, f"{apologies} apologies"
