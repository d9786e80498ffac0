"""What a model writes for itself is left out, whatever its tags are and wherever the text is cut."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rejoinder.agent.simulate import scenario
from rejoinder.models.scripted import ScriptedLlm
from rejoinder.pipeline import ReplyAudio, ReplyCalled, ReplyDone, ReplyText, Tools
from rejoinder.pipeline.replying.text.answer_filter import MAX_THOUGHT_TOKENS
from rejoinder.pipeline.replying.text.thought_filter import (
    ANSWER_TAGS,
    END_TAGS,
    HEADER_TAGS,
    LONGEST_TAG,
    TAG_PAIRS,
    ThoughtFilter,
)
from rejoinder.pipeline.replying.text.untagged_channels import CHANNEL_MARKS

TAGS = [
    *TAG_PAIRS,
    *TAG_PAIRS.values(),
    *ANSWER_TAGS,
    *HEADER_TAGS,
    "<|message|>",
    *END_TAGS,
    "<|channel|>final<|message|>",
]
LETTERS = st.text("<>|/[]◁▷thinkTHINK: \n", max_size=12)
TEXTS = st.lists(
    st.one_of(st.sampled_from(TAGS), st.sampled_from(["final", "analysis"]), LETTERS), max_size=12
).map("".join)


def said(pieces: list[str]) -> str:
    thoughts = ThoughtFilter()
    return "".join([thoughts.feed(piece) for piece in pieces]) + thoughts.flush()


HARMONY = (
    "<|channel|>analysis<|message|>They greet. Say <think> hello.<|end|>"
    "<|start|>assistant<|channel|>final<|message|>Hello there.<|return|>"
)


@pytest.mark.parametrize(
    ("text", "heard"),
    [
        *((f"{begin}Hm, hm.{end}\n\nHello there.", "Hello there.") for begin, end in TAG_PAIRS.items()),
        (HARMONY, "Hello there."),
        (
            "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>"
            "<|start|>assistant<|channel|>final<|message|>Hi.",
            "Hi.",
        ),
        ("<|channel|>analysis<|message|>Hm.<|channel|>final<|message|>Hi.<|end|>", "Hi."),
        ("<|start|>assistant<|message|>Hi.<|end|>", "Hi."),
        ("<|channel>thought\nThey greet.<channel|>Hello.", "Hello."),
        ("<think>\nHm.\n</think>\n<answer>\nHello.\n</answer>", "Hello.\n"),
        (
            "<|open|>think<|sep|>Hm.<|close|>think<|sep|><|open|>response<|sep|>Hello.<|close|>response<|sep|>",
            "Hello.",
        ),
        ("<think></think>\n\nHello.", "Hello."),
        ("\n<think>\n</think>\nHello.", "\nHello."),
        ("Hello <think>hm</think> there.", "Hello  there."),
        ("Hello<think>hm</think> there.", "Hello there."),
        ("<think>one</think>Hello <thought>two</thought>there.", "Hello there."),
        ("<think>a </thinking> or <think> b</think>Yes.", "Yes."),
        ("<think>never ends", ""),
        ("Well. <think>never ends", "Well. "),
        ("It is so.</think>Hello.", "It is so.Hello."),
        ("a < b, <thin> and [THIN] <", "a < b, <thin> and [THIN] <"),
        ("<<think>x</think>y", "<y"),
    ],
)
def test_examples(text: str, heard: str) -> None:
    assert said([text]) == said(list(text)) == heard


@given(TEXTS, st.lists(st.integers(0, 200), max_size=12))
@example(HARMONY, [12, 13, 30, 70])
def test_where_a_text_is_cut_makes_no_difference(text: str, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    assert said([text]) == said(list(text)) == said([text[a:b] for a, b in pairwise(edges)])


@given(st.lists(st.one_of(st.text(max_size=20), st.sampled_from(["<", "<thi", "[THINK", "◁", " "]))))
def test_text_without_tags_is_unchanged_and_held_back_only_where_a_tag_may_begin(pieces: list[str]) -> None:
    text = "".join(pieces)
    if any(tag in text for tag in TAGS) or any(text.lstrip().startswith(mark) for mark in CHANNEL_MARKS):
        return
    thoughts, given, got = ThoughtFilter(), "", ""
    for piece in pieces:
        given += piece
        got += thoughts.feed(piece)
        held = given[len(got) :]
        assert given.startswith(got)
        assert not held or any(tag.startswith(held) for tag in (*TAGS, *CHANNEL_MARKS))
    assert got + thoughts.flush() == text
    assert not thoughts.open and not thoughts.unopened


@given(TEXTS)
def test_little_is_kept(text: str) -> None:
    thoughts = ThoughtFilter()
    for piece in ("<think>", "x" * 10_000, "</think>", "<|start|>", "y" * 10_000, "<|message|>", text):
        thoughts.feed(piece)
        assert len(thoughts._text) < LONGEST_TAG and len(thoughts._header) < 100


def test_unopened_and_unclosed_thoughts_are_reported() -> None:
    thoughts = ThoughtFilter()
    thoughts.feed("Hm.</th")
    assert not thoughts.unopened
    thoughts.feed("ink>Yes.<think>")
    assert thoughts.unopened and thoughts.open
    thoughts.feed("</think>")
    assert not thoughts.open


def test_no_tag_begins_with_another() -> None:
    """Else the shorter one would be found in one piece, and the longer one in another."""
    tags = {tag for tag in TAGS if "final" not in tag}
    assert not [(a, b) for a in tags for b in tags if a != b and b.startswith(a)]


# --- in a conversation ----------------------------------------------------------------------------------


class InOrder(ScriptedLlm):
    """Has a line for each prompt, quickly."""

    def __init__(self, lines: tuple[str, ...]) -> None:
        super().__init__(lines, each=0.001)

    def _line(self, messages: Any) -> str:
        self.prompts.append(list(messages))
        return self.lines[len(self.prompts) - 1]


def call(*replies: str, **options: Any) -> scenario.Talk:
    """Ask as often as there are replies, 10 s apart."""
    llm = InOrder(replies)
    talk = scenario.Talk("what is the weather", "and now", llm=llm, speculate=False, **options)
    for number in range(len(replies)):
        talk.says(1.2, at=0.5 + 10.0 * number)
    return talk.run(until=10.0 * len(replies))


def long_thought(tokens: int) -> str:
    return " ".join(["<think>", *["hm"] * tokens, "</think>"])


@pytest.mark.parametrize("speaks", [True, False])
def test_thoughts_are_neither_said_nor_remembered_nor_part_of_the_limit(speaks: bool) -> None:
    talk = call(long_thought(500) + " It is sunny.", max_tokens=3, speaks=speaks)
    (done,) = talk.of(ReplyDone)
    assert (done.status, done.heard) == ("completed", "It is sunny.")
    assert "".join(event.text for event in talk.of(ReplyText)).strip() == "It is sunny."
    assert talk.said()[-1] == ("assistant", "It is sunny.")
    assert done.usage.written == 505, "but they are paid for"


@pytest.mark.parametrize(
    ("thought", "reason"),
    [
        (long_thought(5).replace("</think>", ""), "the answer ended inside the model"),
        (long_thought(MAX_THOUGHT_TOKENS), "no answer within 2000 tokens"),
        ("<think>" + "x" * 100_000, "no answer within 2000 tokens"),
    ],
    ids=["never closed", "too long", "in one piece"],
)
def test_a_reply_of_thoughts_fails_and_the_next_one_works(thought: str, reason: str) -> None:
    talk = call(thought, "It is sunny.")
    failed, works = talk.of(ReplyDone)
    assert (failed.status, failed.heard) == ("failed", "") and reason in failed.error
    assert works.status == "completed"
    assert {event.turn for event in talk.of(ReplyAudio)} == {works.turn}


def test_a_thought_behind_words_shortens_the_reply() -> None:
    (done,) = call("Well. <think> hm").of(ReplyDone)
    assert (done.status, done.heard) == ("incomplete", "Well.")


def test_an_unopened_thought_is_logged_as_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    (done,) = call("They ask me. </think> It is sunny. </think>").of(ReplyDone)
    assert done.heard == "They ask me. It is sunny."
    (record,) = (record for record in caplog.records if "reasoning parser" in record.getMessage())
    assert record.levelname == "WARNING"


def test_a_model_that_thinks_before_it_calls_a_tool_has_answered() -> None:
    tools = Tools([{"type": "function", "function": {"name": "weather"}}])
    for thought in ("<think> they ask </think>", "<think> they ask"):
        talk = call(f"{thought} @weather {{}}", tools=tools)
        assert [event.call.name for event in talk.of(ReplyCalled)] == ["weather"]
