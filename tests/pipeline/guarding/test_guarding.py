"""Guarded replies in virtual time: nothing refused is heard or remembered, whenever the verdict comes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from rejoinder.agent.simulate.scenario import Talk
from rejoinder.models.scripted import ScriptedLlm, ScriptedTts
from rejoinder.pipeline import (
    AudioChunk,
    Guard,
    OverlapEnded,
    ReplyAudio,
    ReplyCalled,
    ReplyDone,
    ReplyRefused,
    ReplyRequest,
    ReplyText,
    Rules,
    Tools,
    TurnTraced,
)

SORRY = "Let's talk about something else."
STORY = "First a fine sentence. Here is the poison in it. And a last one."
GOOD = "First a fine sentence. Here is the sugar in it. And a last one."


class Judge:
    """Refuses a text with the word poison, after some seconds."""

    def __init__(self, seconds: float = 0.0, error: Exception | None = None) -> None:
        self.seconds, self.error = seconds, error
        self.asked: list[str] = []
        self.open = 0

    async def __call__(self, text: str) -> str:
        self.asked.append(text)
        self.open += 1
        try:
            await asyncio.sleep(self.seconds)
        finally:
            self.open -= 1
        if self.error:
            raise self.error
        return "poison" if "poison" in text else ""


def guard(*judges: Callable[[str], Awaitable[str]], **settings: Any) -> Guard:
    return Guard(judges=judges, say=SORRY, **settings)


def call(reply: str, guarded: Guard | None, **options: Any) -> Talk:
    talk = Talk("what is the weather", replies=(reply, "Bye."), guard=guarded, **options)
    talk.says(1.2, at=0.5)
    return talk


def texts(talk: Talk) -> list[str]:
    return [event.text for event in talk.of(ReplyText)]


def first_audio(talk: Talk) -> float:
    return talk.when(ReplyAudio)[0]


@pytest.mark.parametrize("seconds", [0.0, 0.02, 0.2, 0.45])
@pytest.mark.parametrize("speaks", [True, False])
def test_a_refused_clause_is_replaced_and_the_reply_ends(seconds: float, speaks: bool) -> None:
    judge = Judge(seconds)
    talk = call(STORY, guard(judge), speaks=speaks).run(until=12.0)
    heard = "First a fine sentence."
    assert " ".join(" ".join(texts(talk)).split()) == f"{heard} {SORRY}"
    (done,) = talk.of(ReplyDone)
    assert (done.status, done.refused) == ("incomplete", "poison")
    assert " ".join(done.heard.split()) == f"{heard} {SORRY}"
    assert talk.of(ReplyRefused) == [ReplyRefused(1, "poison")]
    assert [" ".join(text.split()) for _, text in talk.said()] == ["what is the weather", done.heard]
    assert talk.session.history.entries[-1].cut is False
    assert judge.open == 0


def test_the_rules_refuse_before_the_voice_speaks() -> None:
    spoken: list[str] = []

    class Voice(ScriptedTts):
        def speak(self, text: str) -> Any:
            spoken.append(text)
            return super().speak(text)

    talk = call(STORY, guard(rules=Rules(["poison"])), tts=Voice()).run(until=12.0)
    assert not [text for text in spoken if "poison" in text]
    assert talk.done() == [(1, "incomplete", f"First a fine sentence. {SORRY}")]
    assert talk.of(ReplyRefused) == [ReplyRefused(1, "block")]
    assert " ".join(spoken[-2:]) == SORRY


def test_a_first_clause_may_be_refused() -> None:
    talk = call("Poison.", guard(rules=Rules(["poison"]))).run(until=6.0)
    assert talk.done() == [(1, "incomplete", SORRY)]


def test_a_reply_that_passes_is_what_it_is_without_a_guard() -> None:
    """A verdict that is quicker than the voice costs no time at all."""
    plain = call(GOOD, None).run(until=12.0)
    quick = call(GOOD, guard(Judge(0.01), rules=Rules(["poison"]))).run(until=12.0)
    slow = call(GOOD, guard(Judge(0.45))).run(until=12.0)
    assert quick.timeline() == plain.timeline()
    assert first_audio(slow) > first_audio(plain)
    assert texts(slow) == texts(plain) and slow.done() == plain.done()
    (trace,) = (event.trace for event in slow.of(TurnTraced))
    assert "wait for the guard" in dict(trace.budget())


def test_words_are_redacted_before_they_are_spoken_judged_and_remembered() -> None:
    def secret(text: str) -> list[tuple[int, int, str]]:
        at = text.find("poison")
        return [(at, at + 6, "something")] if at >= 0 else []

    judge = Judge()
    talk = call(STORY, guard(judge, rules=Rules(redactors=[secret]))).run(until=12.0)
    assert talk.done() == [(1, "completed", STORY.replace("poison", "something"))]
    assert "poison" not in "".join(judge.asked)
    assert judge.asked[-1].strip() == STORY.replace("poison", "something"), "judges see the reply so far"


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("judge", [Judge(3.0), Judge(error=RuntimeError("down"))], ids=["slow", "broken"])
def test_what_a_judge_that_does_not_answer_decides(
    judge: Judge, strict: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    talk = call(STORY, guard(judge, wait_s=0.4, strict=strict)).run(until=14.0)
    if strict:
        assert talk.done() == [(1, "incomplete", SORRY)]
        assert talk.of(ReplyRefused) == [ReplyRefused(1, "undecided")]
    else:
        assert talk.done() == [(1, "completed", STORY)]
    assert "a guard" in caplog.text and judge.open == 0


@pytest.mark.parametrize("speaks", [True, False])
def test_a_judge_that_waits_for_something_cancelled_is_undecided(speaks: bool) -> None:
    async def cancelled(text: str) -> str:
        task = asyncio.create_task(asyncio.sleep(9.0))
        await asyncio.sleep(0.0)
        task.cancel()
        await task
        return ""

    talk = call(STORY, guard(cancelled), speaks=speaks).run(until=14.0)
    assert [(status, heard) for _, status, heard in talk.done()] == [("completed", STORY)]


def test_a_judge_that_quotes_the_words_in_its_error_leaves_none_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def quoting(text: str) -> str:
        raise ValueError(f"cannot classify {text}")

    call(STORY, guard(quoting)).run(until=14.0)
    assert "a guard failed: ValueError" in caplog.text and "poison" not in caplog.text


def test_one_judge_of_several_is_enough() -> None:
    async def kind(text: str) -> str:
        await asyncio.sleep(9.0)
        return ""

    talk = call(STORY, guard(kind, Judge(), wait_s=0.1)).run(until=12.0)
    assert talk.of(ReplyRefused) == [ReplyRefused(1, "poison")]


def test_given_words_are_not_guarded() -> None:
    talk = call(GOOD, guard(Judge(), rules=Rules(["poison"])), greeting="Poison is our business.")
    talk.llm.lines = [GOOD]
    talk.does(lambda session: session.respond(ReplyRequest(words="More poison.")), at=8.0)
    talk.run(until=12.0)
    assert [heard for _, _, heard in talk.done()] == ["Poison is our", GOOD, "More poison."]


def test_a_refused_reply_calls_no_tools() -> None:
    tools = Tools([{"type": "function", "function": {"name": "weather", "parameters": {}}}])
    reply = 'Here is the poison now. @weather {"city": "Rome"}'
    assert call(reply, None, tools=tools).run(until=8.0).of(ReplyCalled)
    for guarded in (guard(Judge()), guard(rules=Rules(["poison"]))):
        assert not call(reply, guarded, tools=tools).run(until=8.0).of(ReplyCalled)


@pytest.mark.parametrize("speaks", [True, False])
def test_replies_out_of_band_are_guarded(speaks: bool) -> None:
    talk = call("Fine.", guard(rules=Rules(["poison"])))
    talk.llm.lines = [STORY]
    request = ReplyRequest(remembered=False, speaks=speaks, instructions="x")
    talk.does(lambda session: session.respond(request), at=0.1)
    talk.run(until=0.45 + 12.0)
    done = next(event for event in talk.of(ReplyDone) if event.turn == 1)
    assert (done.status, done.refused) == ("incomplete", "block") and "poison" not in done.heard


def test_a_guess_tells_nothing_of_a_refusal_and_is_dropped() -> None:
    talk = Talk(
        "what is the weather in", "what is the weather in rome", replies=("Poison.", "Poison.", "Fine.")
    )
    talk.options = replace(talk.options, guard=guard(rules=Rules(["poison"])))
    talk.says(0.8, at=0.5)
    talk.says(0.8, at=1.45)
    talk.run(until=8.0)
    assert len(talk.llm.prompts) > len(talk.of(ReplyDone)), "a guess was dropped"
    assert len(talk.of(ReplyRefused)) == len(talk.of(ReplyDone)) == 1


class SilentTts(ScriptedTts):
    """Has no audio for a clause without words."""

    def speak(self, text: str) -> Any:
        return super().speak(text) if any(map(str.isalpha, text)) else _nothing()


async def _nothing() -> Any:
    for chunk in list[AudioChunk]():
        yield chunk


def test_clauses_without_audio_do_not_confuse_the_verdicts() -> None:
    judge = Judge(0.3)
    talk = call("So! 1! 2! 3! Here is sugar. 4! Here is the poison.", guard(judge), tts=SilentTts())
    talk.run(until=12.0)
    assert talk.done() == [(1, "incomplete", f"So! Here is sugar. {SORRY}")]
    assert judge.open == 0


def test_a_limit_of_seconds_ends_a_guarded_reply() -> None:
    judge = Judge(0.05)
    talk = call(" ".join([GOOD] * 6), guard(judge), max_reply_s=2.0).run(until=15.0)
    (done,) = talk.of(ReplyDone)
    assert (done.status, done.refused) == ("incomplete", "") and judge.open == 0
    plain = call(" ".join([GOOD] * 6), None, max_reply_s=2.0).run(until=15.0)
    assert talk.done() == plain.done()


def test_a_model_that_fails_in_a_guarded_reply_is_reported() -> None:
    talk = call(GOOD, guard(Judge(0.3)), llm=ScriptedLlm([GOOD], fail_after=6)).run(until=8.0)
    assert [done.status for done in talk.of(ReplyDone)] == ["failed"]


VERDICTS = [0.0, 0.03, 0.12, 0.3, 0.9]
"""Before the voice has audio, while it speaks the clause, and after that."""


def check_heard(talk: Talk) -> None:
    """Raise AssertionError if refused words were sent or remembered, or any words came twice."""
    sent = texts(talk)
    assert "poison" not in " ".join(sent).lower()
    remembered = [entry.text for entry in talk.session.history.entries if entry.role == "assistant"]
    for text in remembered:
        assert "poison" not in text.lower()
    prompts: Sequence[Any] = talk.llm.prompts
    assert not any("poison" in message["content"].lower() for prompt in prompts for message in prompt)
    for turn in {event.turn for event in talk.of(ReplyText)}:
        said = [event.text for event in talk.of(ReplyText) if event.turn == turn]
        assert len(said) == len(set(said)), said
        refusals = [event for event in talk.of(ReplyRefused) if event.turn == turn]
        assert len(refusals) <= 1
        assert SORRY not in said or refusals
    audio: list[Any] = talk.of(ReplyAudio)
    for before, after in pairwise(audio):
        assert after.turn != before.turn or after.chunk.start == before.chunk.end


@pytest.mark.parametrize("seconds", VERDICTS)
def test_an_interruption_at_any_time_lets_nothing_refused_through(seconds: float) -> None:
    refused = 0
    for step in range(60):
        judge = Judge(seconds)
        talk = call(STORY, guard(judge, wait_s=2.0))
        at = 1.5 + step * 0.05
        talk.does(lambda session: session.interrupt(), at=at)
        talk.run(until=at + 0.5)
        check_heard(talk)
        assert judge.open == 0
        (done,) = talk.of(ReplyDone) or [None]
        assert done is None or done.status in ("cancelled", "incomplete")
        refused += bool(talk.of(ReplyRefused))
    assert 0 < refused < 60


@pytest.mark.parametrize("seconds", VERDICTS)
def test_a_caller_who_speaks_at_any_time_hears_nothing_refused(seconds: float) -> None:
    for step in range(12):
        talk = call(STORY, guard(Judge(seconds), wait_s=2.0))
        talk.says(0.8, at=1.9 + step * 0.25)
        talk.run(until=8.0)
        check_heard(talk)
        assert talk.of(ReplyDone)[-1].status in ("completed", "incomplete")


@pytest.mark.parametrize("seconds", VERDICTS)
def test_a_caller_who_leaves_at_any_time_leaves_no_judge_at_work(seconds: float) -> None:
    for step in range(12):
        judge = Judge(seconds)
        talk = call(STORY, guard(judge, wait_s=2.0)).run(until=1.5 + step * 0.1)
        check_heard(talk)
        assert judge.open == 0


def test_a_pause_holds_a_refusal_back() -> None:
    """A backchannel pauses the reply. The verdict that comes meanwhile is said after it, once."""
    for step in range(10):
        guarded = guard(Judge(0.5), wait_s=2.0)
        talk = Talk("what is the weather", "mm-hm", replies=(STORY,), guard=guarded, holds_audio=True)
        talk.says(1.2, at=0.5)
        talk.says(0.3, at=2.4 + step * 0.2)
        talk.run(until=8.0)
        check_heard(talk)
        assert talk.done()[0] == (1, "incomplete", f"First a fine sentence. {SORRY}")
        assert talk.of(OverlapEnded)
