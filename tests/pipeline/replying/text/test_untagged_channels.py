"""An answer of gpt-oss whose special tokens are stripped: only its final message is said."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rejoinder.agent.simulate.scenario import Talk
from rejoinder.models.scripted import ScriptedLlm
from rejoinder.pipeline import ReplyDone
from rejoinder.pipeline.replying.text.thought_filter import ThoughtFilter
from rejoinder.pipeline.replying.text.untagged_channels import CHANNEL_MARKS, UntaggedChannels

STRIPPED = "analysisThe user says hello. We greet.assistantfinalHello there."
PARTS = st.lists(
    st.one_of(
        st.sampled_from(
            [*CHANNEL_MARKS, "assistant", "finally ", "Hi. ", "analysis of ", " ", '"', "5", "日"]
        ),
        st.text("analysifcomentrF. ", max_size=6),
    ),
    max_size=8,
).map("".join)


def said(pieces: list[str]) -> str:
    thoughts = ThoughtFilter()
    return "".join([thoughts.feed(piece) for piece in pieces]) + thoughts.flush()


@pytest.mark.parametrize(
    ("text", "heard"),
    [
        (STRIPPED, "Hello there."),
        ("assistantanalysisHm.assistantfinalHello.", "Hello."),
        ('analysis"Hello" is a greeting.assistantfinalHello.', "Hello."),
        ("\nanalysisHm.assistantfinal\n\nHello.", "\nHello."),
        ("analysisHm.assistantanalysisHm, hm.assistantcommentaryLooking.assistantfinalHello.", "Hello."),
        ('analysisHm.assistantcommentary to=functions.f json{"a": 1}assistantfinalHello.', "Hello."),
        ('commentary to=functions.f json{"a": 1}', ""),
        ("finalHello.", "Hello."),
        ("final5 degrees.", "5 degrees."),
        ("final今日は晴れです。", "今日は晴れです。"),
        ("assistantfinalHello.assistantanalysisDone.", "Hello."),
        ("analysis2 and 2 is 4.", ""),
        ("analysisHm.assistantfinal<think>hm</think>Hello.", "Hello."),
    ],
)
def test_only_the_final_message_is_said(text: str, heard: str) -> None:
    assert said([text]) == said(list(text)) == heard


@pytest.mark.parametrize(
    "text",
    [
        "analysis",
        "analysis of the weather: an assistant final exam.",
        "analysis: sunny.",
        "Analysis is my hobby. assistantfinal is a word of gpt-oss.",
        "final",
        "finally, it is sunny.",
        "final answer: five.",
        "finale is a word.",
        "commentary on that: none.",
        "assistant",
        "assistants are useful.",
        "The assistant's final word: analysis, commentary, final.",
        "a final analysis",
    ],
)
def test_words_of_an_answer_are_said(text: str) -> None:
    assert said([text]) == said(list(text)) == text


@given(PARTS, st.lists(st.integers(0, 80), max_size=8))
@example(STRIPPED, [3, 8, 40, 46, 50])
def test_where_the_text_is_cut_makes_no_difference(text: str, cuts: list[int]) -> None:
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    assert said([text]) == said(list(text)) == said([text[a:b] for a, b in pairwise(edges)])


@given(PARTS)
def test_answer_that_begins_otherwise_is_unchanged(text: str) -> None:
    assert said(list("It is so. " + text)) == "It is so. " + text


@given(PARTS)
def test_little_is_held_back(text: str) -> None:
    channels = UntaggedChannels()
    for character in text:
        channels.feed(character)
        assert len(channels._text) <= max(map(len, CHANNEL_MARKS))


@pytest.mark.parametrize("speaks", [True, False])
def test_thoughts_without_tags_are_neither_said_nor_remembered(speaks: bool) -> None:
    talk = Talk(replies=(STRIPPED,), speaks=speaks)
    talk.says(0.6, at=0.5)
    talk.run(6.0)
    (done,) = talk.of(ReplyDone)
    assert (done.status, done.heard) == ("completed", "Hello there.")
    assert talk.said()[-1] == ("assistant", "Hello there.")


def test_answer_without_a_final_message_fails() -> None:
    talk = Talk(llm=ScriptedLlm(["analysisThey ask for the weather."]), apology="Sorry.")
    talk.says(0.6, at=0.5)
    talk.run(6.0)
    (done,) = talk.of(ReplyDone)
    assert (done.status, done.heard) == ("failed", "Sorry.")
    assert "ended inside the model's thoughts" in done.error
