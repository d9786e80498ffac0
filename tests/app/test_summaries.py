"""A summary is made while neither side has the floor, and stops the moment one of them takes it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

import pytest

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.bench.cases.long_call import PromptReader
from rejoinder.agent.simulate.scenario import Talk
from rejoinder.pipeline import Floor, Message, Models, OverlapEnded, ReplyDone, Session, SpeechStarted
from rejoinder.pipeline.context.summaries import condensed

LINES = ["my code is 7731 and " + "it does not matter " * 20] * 4


class Slow(PromptReader):
    """A model that notes when it worked on a summary, which takes two seconds."""

    def __init__(self) -> None:
        super().__init__(4_096)
        self.worked: list[tuple[float, float]] = []

    async def write(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        """Work for two seconds. Closing the generator stops it."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        assert not self.open, "a summary runs beside another request"
        self.open += 1
        try:
            await asyncio.sleep(2.0)
            yield "The caller told a code."
        finally:
            self.open -= 1
            self.worked.append((began, loop.time()))


def talk(llm: Slow, **more: object) -> Talk:
    return Talk(*LINES, llm=llm, agent=Agent("Be brief."), prompt_tokens=400, **more)


@pytest.mark.parametrize("start_ms", range(18_000, 26_000, 250))
def test_summary_stops_when_the_caller_speaks(start_ms: int) -> None:
    llm = Slow()
    call = talk(llm)
    for at in (1.0, 9.0):
        call.says(3.0, at=at)
    call.says(3.0, at=start_ms / 1000)
    call.run(45.0)
    assert llm.worked, "there is time for a summary"
    spoken = call.when(SpeechStarted)
    for began, ended in llm.worked:
        assert not [at for at in spoken if began + 1e-3 < at < ended - 1e-3], (
            "the caller waits for no summary"
        )
        held = [floor for at, floor in call.floors if began + 1e-3 < at < ended - 1e-3]
        assert Floor.AGENT not in held and Floor.USER not in held
    assert "7731" in call.session.history.messages()[0]["content"]


def test_summary_follows_a_noise_that_outlasts_the_reply() -> None:
    llm = Slow()
    call = Talk(*LINES[:3], "", llm=llm, agent=Agent("Be brief."), prompt_tokens=400)
    for at in (1.0, 9.0, 17.0):
        call.says(3.0, at=at)
    call.says(1.4, at=24.0)
    call.run(30.0)
    assert call.when(ReplyDone)[-1] < call.when(OverlapEnded)[-1]
    assert llm.worked[0][0] == pytest.approx(call.when(OverlapEnded)[-1], abs=0.25)


def test_model_of_the_next_agent_makes_the_summaries_after_a_hand_off() -> None:
    first, second = Slow(), Slow()
    call = talk(first)

    def hand_over(session: Session) -> None:
        models = Models(call.vad, call.stt, second, call.tts, None, call.load_shedder)
        session.hand_over(session.options, models)

    call.does(hand_over, at=0.5)
    for at in (1.0, 9.0, 17.0):
        call.says(3.0, at=at)
    call.run(45.0)
    assert second.worked and not first.worked


def test_an_agent_may_do_without_a_model_or_without_summaries() -> None:
    for compress in (condensed, None):
        llm = Slow()
        call = Talk(*LINES, llm=llm, agent=Agent("Be brief.", compress=compress), prompt_tokens=400)
        for at in (1.0, 9.0, 17.0, 25.0):
            call.says(3.0, at=at)
        call.run(40.0)
        assert not llm.worked
        assert bool(call.session.history.summary) is (compress is not None)
