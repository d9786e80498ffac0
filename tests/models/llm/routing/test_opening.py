"""The first words of an answer: which of a small model's words are taken, and which phrase comes when."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejoinder.agent.simulate import virtual_clock
from rejoinder.models.llm.routing.opening import (
    OPENING_EXAMPLES,
    OPENING_WORDS,
    accepted,
    ask_opening,
    fit_to_go_on,
    opening_prompt,
    phrase,
)
from rejoinder.models.scripted import ScriptedLlm
from rejoinder.pipeline import Message


@pytest.mark.parametrize(
    ("text", "opening"),
    [
        ("Sure, let me look at that,", "Sure, let me look at that, "),
        ("Sure, let me look at that, it is sunny.", "Sure, let me look at that, "),
        ("Okay, let me see.\nThe answer is", "Okay, let me see. "),
        ("Let me see:", "Let me see, "),
        ("Okay, I'll check that, I can", "Okay, I'll check that, "),
        ("I'm sorry for your loss,", ""),
        ("A debit card has no interest,", ""),
        ("Yes, it is,", ""),
        ("Sure,", ""),
        ("", ""),
        ("Sure thing", ""),
        ("What do you mean?", ""),
        ("It takes 7 hours,", ""),
        ("The capital is Paris, of", ""),
        ("I cannot do that,", ""),
        ("No, that is not so,", ""),
        ("**Sure**, let me see,", ""),
        ("one two three four five six seven eight nine ten,", ""),
    ],
)
def test_an_opening_answers_nothing_and_can_go_on(text: str, opening: str) -> None:
    assert accepted(text) == opening


@pytest.mark.parametrize("opening", [opening for _, opening in OPENING_EXAMPLES])
def test_the_examples_of_the_small_model_are_accepted(opening: str) -> None:
    assert accepted(opening) == f"{opening} "


@given(st.text(max_size=100))
def test_whatever_is_accepted_is_short_and_ends_with_a_blank(text: str) -> None:
    if opening := accepted(text):
        assert len(opening.split()) <= OPENING_WORDS and opening[-1] == " " and opening[-2] in ",.!…"
        assert accepted(opening) == opening


def test_phrases_take_turns_within_a_call() -> None:
    talk: list[Message] = []
    said = []
    for _ in range(3):
        talk.append(Message(role="user", content="And then?"))
        said.append(phrase(["One moment,", "Let me see."], talk))
        talk.append(Message(role="assistant", content="That."))
    assert said == ["One moment, ", "Let me see. ", "One moment, "]
    assert phrase([], talk) == "" == fit_to_go_on("  ")


def test_a_model_that_fails_or_talks_on_opens_nothing_and_is_closed() -> None:
    async def scenario() -> None:
        good = ScriptedLlm(["Sure, let me check that, the answer is so."])
        assert await ask_opening(good, "Why?") == "Sure, let me check that, "
        assert good.prompts == [opening_prompt("Why?")] and good.open == 0
        assert await ask_opening(ScriptedLlm(["yes " * 100]), "Why?") == ""
        assert await ask_opening(ScriptedLlm(["Sure, I"], fail_after=1), "Why?") == ""
        slow = ScriptedLlm(["Sure, let me check that,"], first=100.0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1.0):
                await ask_opening(slow, "Why?")
        assert slow.open == 0

    virtual_clock.run(scenario())
