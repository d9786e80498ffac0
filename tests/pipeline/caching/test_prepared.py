"""Answers that are made before a call, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from rejoinder.agent.simulate import virtual_clock
from rejoinder.agent.simulate.scenario import Talk
from rejoinder.models.guard.guardrails import guardrails
from rejoinder.models.scripted import ScriptedLlm
from rejoinder.pipeline import Models, PipelineError, ReplyAudio, ReplyText, Tools, TurnTraced
from rejoinder.pipeline.caching.answers import CachedAnswer, CacheQuestion
from rejoinder.pipeline.replying.prepared import first_question, prepare

WORDS = "When do you open?"
SPECS = {"stt": "whisper:tiny.en", "llm": "ort:a", "tts": "piper:b"}


class Kept:
    """A cache with one answer."""

    def __init__(self) -> None:
        self.entries: dict[CacheQuestion, CachedAnswer] = {}

    async def find(self, question: CacheQuestion) -> CachedAnswer | None:
        return self.entries.get(question)

    def keep(self, question: CacheQuestion, answer: CachedAnswer) -> None:
        self.entries[question] = answer


def talk(kept: Kept, **more: Any) -> Talk:
    planned = Talk(WORDS, cache=kept, specs=SPECS, **more)
    planned.says(1.0, at=6.0)
    return planned


def models(of: Talk) -> Models:
    return Models(of.vad, of.stt, of.llm, of.tts, of.turn_model, of.load_shedder, of.specs)


def prepared(of: Talk, answer: str = "") -> CachedAnswer | None:
    return virtual_clock.run(prepare(models(of), of.options, WORDS, answer))


@pytest.mark.parametrize("answer", ["", "From nine to six. Every day."])
@pytest.mark.parametrize("greeting", ["", "Welcome to the bakery! How can I help you today?"])
def test_a_call_plays_the_answer_that_was_made_for_it(answer: str, greeting: str) -> None:
    kept, said = Kept(), answer or "We open at nine. Goodbye."
    first = talk(kept, greeting=greeting, replies=(said,))
    question, made = first_question(models(first), first.options, WORDS), prepared(first, answer)
    assert question and made and " ".join(text for text, _ in made.clauses) == said
    assert bool(first.llm.prompts) == (not answer)
    kept.entries[question] = made
    call = talk(kept, greeting=greeting, replies=("Wrong.",)).run(until=14.0)
    assert call.said()[-1] == ("assistant", said) and not call.llm.prompts
    assert call.of(TurnTraced)[-1].trace.counts["cache_exact"] == 1
    last = call.of(ReplyText)[-1].turn
    pcm = b"".join(event.chunk.pcm for event in call.of(ReplyAudio) if event.turn == last)
    assert pcm == b"".join(audio.pcm for _, audio in made.clauses)


def test_a_call_keeps_the_same_answer_as_is_made_in_advance() -> None:
    kept = Kept()
    call = talk(kept, replies=("We open at nine.",)).run(until=14.0)
    assert list(kept.entries.values()) == [prepared(call)]


def test_an_answer_over_a_limit_or_refused_by_the_guard_is_not_made() -> None:
    long = "We open at nine. " * 20
    for more in ({"max_reply_s": 1.0}, {"guard": guardrails(block=["nine"])}, {"max_tokens": 3}):
        assert prepared(talk(Kept(), replies=(long,), **more)) is None
    assert prepared(talk(Kept(), guard=guardrails(block=["nine"])), "At nine.") is not None, "given words"


def test_a_model_that_fails_is_an_error() -> None:
    for apology in ("", "I am sorry."):
        with pytest.raises(PipelineError):
            prepared(talk(Kept(), llm=ScriptedLlm(["We open."], fail_after=1), apology=apology))


def test_a_session_that_is_not_cached_has_no_question() -> None:
    tools = Tools([{"type": "function", "function": {"name": "weather", "parameters": {}}}])
    for more in ({"tools": tools}, {"speaks": False}):
        planned = talk(Kept(), **more)
        assert first_question(models(planned), planned.options, WORDS) is None
