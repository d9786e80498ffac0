"""How many tokens a conversation may have, and who counts them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejoinder.models.scripted import ScriptedLlm
from rejoinder.pipeline import Message, Options, Tools
from rejoinder.pipeline.context.tokens import (
    CONTEXT_TOKENS,
    CONVERSATION_TOKENS,
    KNOWLEDGE_TOKENS,
    SAMPLE_CHARACTERS,
    SHORTENED,
    TokenBudget,
    estimated,
    shortened,
)
from rejoinder.pipeline.history import History

PLAIN = Options(instructions="")


class Small:
    """A model with a small context, whose tokens are words. It notes each text that it counts."""

    def __init__(self, context: int = 1_024) -> None:
        self.context_tokens = context
        self.counted: list[str] = []

    async def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        yield "yes"

    async def warm(self, messages: Sequence[Message]) -> None:
        """Do nothing."""

    def tokens_in(self, text: str) -> int:
        self.counted.append(text)
        return len(text.split())


def test_the_budget_is_what_the_models_context_leaves() -> None:
    room = TokenBudget(Small()).conversation(PLAIN)
    assert 600 < room < 1_024 - 256
    longer = TokenBudget(Small()).conversation(replace(PLAIN, instructions="word " * 100))
    assert longer == room - 100
    tools = Tools([{"type": "function", "function": {"name": "x" * 300}}])
    assert room - 130 < TokenBudget(Small()).conversation(replace(PLAIN, tools=tools)) < room - 100

    async def context(words: str) -> str:
        return ""

    large = TokenBudget(Small(8_192))
    assert large.conversation(replace(PLAIN, context=context)) == large.conversation(PLAIN) - KNOWLEDGE_TOKENS
    assert TokenBudget(Small()).conversation(replace(PLAIN, prompt_tokens=300)) == 300
    assert TokenBudget(Small()).conversation(replace(PLAIN, prompt_tokens=5_000)) == room
    assert TokenBudget(Small()).conversation(replace(PLAIN, instructions="word " * 5_000)) == 1_024 // 8


def test_a_model_that_does_not_tell_gets_a_default_and_a_huge_context_is_not_filled() -> None:
    unknown = TokenBudget(ScriptedLlm())
    assert unknown.context == CONTEXT_TOKENS and unknown.count("four words are here") == 7
    assert 7_000 < unknown.conversation(PLAIN) < CONTEXT_TOKENS
    assert TokenBudget(Small(200_000)).conversation(PLAIN) == CONVERSATION_TOKENS
    assert TokenBudget(Small(200_000)).conversation(replace(PLAIN, prompt_tokens=50_000)) == 50_000


def test_each_entry_is_counted_once_and_prompts_count_nothing() -> None:
    llm = Small()
    budget = TokenBudget(llm)
    history = History("Be brief.", tokens=budget.conversation(PLAIN), budget=budget)
    for turn in range(200):
        history.add_user(f"question {turn}")
        history.begin_reply(turn)
        history.settle(turn, f"answer {turn}", cut=False)
        history.messages("and now")
    spoken = [text for text in llm.counted if text]
    assert len(spoken) == len(set(spoken)) == 400


def test_a_long_text_is_counted_by_its_start() -> None:
    llm = Small()
    assert TokenBudget(llm).count("word " * 10_000) == 10_000
    assert max(map(len, llm.counted)) == SAMPLE_CHARACTERS


@pytest.mark.parametrize(
    ("text", "tokens"), [("", 0), ("abc", 1), ("Grüße", 3), ("こんにちは", 5), ("\ud800", 1)]
)
def test_the_estimate_counts_bytes(text: str, tokens: int) -> None:
    assert estimated(text) == tokens


@given(st.text(max_size=2_000), st.integers(20, 300))
def test_a_shortened_text_fits_and_keeps_both_ends(text: str, tokens: int) -> None:
    short = shortened(text, tokens)
    if estimated(text) <= tokens:
        assert short == text
    else:
        head, _, tail = short.partition(SHORTENED)
        assert text.startswith(head) and text.endswith(tail)
        assert len(head + tail) < len(text)


def test_a_shortened_english_text_fits() -> None:
    text = " ".join(f"row {number} has some text" for number in range(500))
    short = shortened(text, 100)
    assert 80 <= estimated(short) <= 100 and short.startswith("row 0 ") and short.endswith("text")
