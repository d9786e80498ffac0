"""Openings in virtual time: first words of a small model or a phrase, then the large model goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import pytest

from rejoinder.agent.simulate import virtual_clock
from rejoinder.agent.simulate.scenario import Talk
from rejoinder.models.llm.failover.candidate import Candidate
from rejoinder.models.llm.failover.failover import ToolFailover
from rejoinder.models.llm.routing.opening import OPENED, Openings
from rejoinder.models.scripted import ScriptedLlm, ScriptedTurnModel
from rejoinder.pipeline import Message, ReplyDone, Tools, TurnTraced
from rejoinder.pipeline.trace import Trace
from rejoinder.pipeline.upstream import Upstream, upstream

OPENING = "Sure, let me look at that,"
REST = "the first train leaves at nine, and it takes an hour. You can pay with a card."
WHOLE = f"{OPENING} {REST}"
UNTOLD = "Hello! The first train leaves at nine."
HARD = "when does the train to boston leave tomorrow"
TOOLS = Tools([{"type": "function", "function": {"name": "book"}}])


class Big(ScriptedLlm):
    """Says the rest behind an opening that its prompt holds, and another answer without one."""

    def _line(self, messages: Sequence[Message]) -> str:
        self.prompts.append(list(messages))
        told = messages[-1]["content"] == OPENED and messages[-2]["content"] == OPENING
        return REST if told else UNTOLD


class Healthy(ScriptedLlm):
    """Goes on wherever the whole answer broke off."""

    def _line(self, messages: Sequence[Message]) -> str:
        given = messages[-2]["content"].split()
        assert WHOLE.split()[: len(given)] == given, "it sees the opening, too"
        return " ".join(WHOLE.split()[len(given) :])


def opening(
    big: ScriptedLlm,
    opener: Any = None,
    phrases: Sequence[str] = (OPENING,),
    after_s: float = 0.3,
    **more: Any,
) -> Any:
    model = Candidate("opener", opener) if opener else None
    candidates = [Candidate(name, llm) for name, llm in {"big": big, **more}.items()]
    several: Any = ToolFailover(candidates, openings=Openings(phrases, model, after_s))
    several.open = 0  # the models' own count is checked
    return several


def talk_with(several: Any, **options: Any) -> Talk:
    talk = Talk(HARD, llm=several, **{"speculate": False, **options})
    talk.says(1.2, at=0.5)
    return talk


def done_of(talk: Talk) -> ReplyDone:
    (done,) = talk.of(ReplyDone)
    return done


def test_an_opening_is_heard_first_and_both_are_one_reply() -> None:
    big = Big(first=1.5)
    talk = talk_with(opening(big)).run(until=15.0)
    assert done_of(talk).heard == WHOLE == talk.heard(1, 15.0)
    assert talk.said()[-1] == ("assistant", WHOLE)
    trace = talk.of(TurnTraced)[0].trace
    assert trace.counts["openings"] == 1 and "wait for the opening" in dict(trace.budget())
    assert trace.marks["audio_sent"] - trace.marks["reply_started"] < 0.5, "0.3 s and the voice"
    assert [message["content"] for message in big.prompts[-1][-2:]] == [OPENING, OPENED]
    assert len(big.prompts) == 2 and big.open == 0


def test_a_small_model_opens_and_the_trace_names_both() -> None:
    opener, big = ScriptedLlm([f"{OPENING} it leaves at ten."], first=0.1), Big(first=1.5)
    talk = talk_with(opening(big, opener, phrases=())).run(until=15.0)
    assert done_of(talk).heard == WHOLE and opener.open == big.open == 0
    assert talk.of(TurnTraced)[-1].trace.models == ["opener", "big"]


@pytest.mark.parametrize(
    "words", ["It leaves at 10 and", "No,", "one two three four five six seven eight nine ten"]
)
def test_words_of_the_small_model_that_do_not_fit_give_way_to_a_phrase(words: str) -> None:
    talk = talk_with(opening(Big(first=1.5), ScriptedLlm([words]))).run(until=15.0)
    assert done_of(talk).heard == WHOLE


@pytest.mark.parametrize("first", [0.05, 0.25])
def test_an_answer_in_time_has_no_opening(first: float) -> None:
    big = Big(first=first)
    talk = talk_with(opening(big)).run(until=15.0)
    assert done_of(talk).heard == UNTOLD and len(big.prompts) == 1


def test_an_answer_that_overtakes_the_small_model_has_no_opening() -> None:
    opener = ScriptedLlm([OPENING], first=5.0)
    talk = talk_with(opening(Big(first=1.0), opener, phrases=())).run(until=15.0)
    assert done_of(talk).heard == UNTOLD and opener.open == 0


def test_a_model_that_answers_itself_opens_nothing() -> None:
    big = Big(first=1.5)
    several: Any = ToolFailover([candidate := Candidate("big", big)], openings=Openings([OPENING], candidate))
    several.open = 0
    assert done_of(talk_with(several).run(until=15.0)).heard == UNTOLD


def test_nothing_is_opened_while_a_reply_is_only_a_guess() -> None:
    several = opening(Big(first=3.0), after_s=0.0)
    talk = talk_with(several, speculate=True, turn=ScriptedTurnModel(0.1)).run(until=15.0)
    trace = talk.of(TurnTraced)[0].trace
    assert trace.marks["reply_started"] + 0.2 < trace.marks["committed"], "it was a guess"
    assert trace.marks["committed"] <= trace.marks["opened"] <= trace.marks["committed"] + 0.1
    assert done_of(talk).heard == WHOLE


def test_a_model_that_fails_behind_the_opening_is_continued_or_excused() -> None:
    sorry = "Sorry, I lost my thread."
    talk = talk_with(opening(Big(first=1.5, fail_after=4)), cut_apology=sorry).run(until=15.0)
    done = done_of(talk)
    assert done.status == "failed" and done.heard.startswith(OPENING) and done.heard.endswith(sorry)
    talk = talk_with(opening(Big(first=1.5, fail_after=4), other=Healthy())).run(until=15.0)
    assert (done_of(talk).status, done_of(talk).heard) == ("completed", WHOLE)


def test_barge_in_at_every_word_cancels_both_and_keeps_what_was_heard() -> None:
    heard = set()
    for tenths in range(22, 110, 3):
        big, opener = Big(first=1.5), ScriptedLlm([OPENING], first=0.1)
        talk = talk_with(opening(big, opener))
        talk.says(1.0, at=tenths / 10)
        talk.run(until=tenths / 10 + 2.5)
        first = talk.of(ReplyDone)[0]
        assert WHOLE.startswith(first.heard.rstrip("—").strip()), first.heard
        heard.add(len(first.heard.split()))
        said = [words for role, words in talk.said() if role == "assistant"]
        assert not first.heard or said[0].startswith(first.heard)
        assert big.open == opener.open == 0
    assert len(heard) > 12, heard


def test_cancelling_at_every_step_leaves_nothing_open() -> None:
    async def scenario() -> None:
        for step in range(1, 10_000):
            big, opener = Big(first=0.5), ScriptedLlm([OPENING], first=0.1)
            tasks = len(asyncio.all_tasks())
            cancelled = await virtual_clock.cancelled_at(step, heard_of(opening(big, opener)))
            await asyncio.sleep(0)
            assert len(asyncio.all_tasks()) == tasks and big.open == opener.open == 0, step
            if not cancelled:
                break
        assert step > 20

    virtual_clock.run(scenario())


async def heard_of(several: Any) -> str:
    upstream.set(Upstream(Trace(1, HARD), spoken=True))
    async with aclosing(several.reply([Message(role="user", content=HARD)])) as words:
        return "".join([word async for word in words])


def test_a_request_with_tools_is_sent_once_and_has_no_opening() -> None:
    big = Big(first=1.5)
    talk = talk_with(opening(big), tools=TOOLS).run(until=15.0)
    assert done_of(talk).heard == UNTOLD and len(big.prompts) == 1


def test_replies_in_text_and_cues_have_no_opening() -> None:
    talk = talk_with(opening(Big(first=1.5)), speaks=False).run(until=15.0)
    assert talk.said()[-1] == ("assistant", UNTOLD)
    talk = talk_with(opening(Big(first=1.5)), idle_s=3.0, idle_prompts=1).run(until=30.0)
    assert [done.heard for done in talk.of(ReplyDone)] == [WHOLE, UNTOLD]
