"""Fillers in a conversation: what the caller hears while a model or a tool is slow; in virtual time."""

from __future__ import annotations

import asyncio

import pytest

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.simulate.scenario import Talk
from rejoinder.models.scripted import SECONDS_PER_CHARACTER, ScriptedLlm
from rejoinder.pipeline import (
    EndOfTurn,
    ReplyAudio,
    ReplyCalled,
    ReplyDone,
    ReplyRequest,
    ReplyText,
    TurnTraced,
)


def agent_with(tool_s: float = 2.0, **options: tuple[str, ...]) -> Agent:
    agent = Agent(**options)  # type: ignore[arg-type]

    @agent.tool
    async def look() -> str:
        """Look something up."""
        await asyncio.sleep(tool_s)
        return "found"

    return agent


def talk(agent: Agent, *replies: str, first: float = 0.08, says: tuple[float, ...] = (0.5,)) -> Talk:
    conversation = Talk(*["look it up"] * len(says), llm=ScriptedLlm(list(replies), first, 0.0), agent=agent)
    for at in says:
        conversation.says(0.6, at=at)
    return conversation.run(16.0)


def heard(conversation: Talk) -> list[str]:
    return [done.heard for done in conversation.of(ReplyDone) if done.heard]


def sounds(conversation: Talk) -> list[tuple[float, float]]:
    """Return when the agent is heard, in seconds: the begin and the end of each stretch of audio."""
    found: list[tuple[float, float]] = []
    for at, event in conversation.log:
        if isinstance(event, ReplyAudio):
            begin = max(at, found[-1][1]) if found else at
            if found and begin - found[-1][1] < 0.05:
                found[-1] = found[-1][0], begin + event.chunk.seconds
            else:
                found.append((begin, begin + event.chunk.seconds))
    return found


def silences(conversation: Talk) -> list[float]:
    """Return the silences from the end of the caller's turn to the end of the answer, in seconds."""
    ends = [conversation.when(EndOfTurn)[0], *(end for _, end in sounds(conversation))]
    return [begin - end for end, (begin, _) in zip(ends, sounds(conversation), strict=False)]


def test_tool_of_two_seconds_leaves_no_long_silence() -> None:
    conversation = talk(agent_with(2.0), "@look {}", "It is found.")
    (called,) = conversation.when(ReplyCalled)
    assert sounds(conversation)[0][0] - called < 0.5
    assert max(silences(conversation)) < 1.5, silences(conversation)
    assert heard(conversation) == ["It is found."]


def test_filler_is_in_no_transcript_and_no_prompt() -> None:
    conversation = talk(agent_with(2.0), "@look {}", "It is found.")
    assert len(sounds(conversation)) == 2
    assert [event.text for event in conversation.of(ReplyText)] == ["It is found."]
    assert [text for role, text in conversation.said() if role == "assistant"] == ["It is found."]
    assert "One moment" not in str(conversation.llm.prompts)


def test_slow_language_model_is_covered_by_one_filler() -> None:
    conversation = talk(agent_with(), "Here it is.", first=3.0)
    filler, answer = sounds(conversation)
    (ended,) = conversation.when(EndOfTurn)
    assert filler[0] - ended < 1.3 and filler[1] < answer[0]
    assert heard(conversation) == ["Here it is."]
    (traced,) = conversation.of(TurnTraced)
    assert traced.trace.marks["filler"] < traced.trace.marks["first_audio"], "the answer is measured, too"


LONG = "One moment please, while I am looking for that in all of my very many books."


@pytest.mark.parametrize("first", [1.5, 1.7, 2.0, 2.5])
def test_long_filler_ends_with_a_word_once_the_answer_is_there(first: float) -> None:
    conversation = talk(agent_with(fillers=(LONG,)), "Here it is.", first=first)
    (begin, _), *later = sounds(conversation)
    assert not later, "the answer follows at once"
    (traced,) = conversation.of(TurnTraced)
    marks = traced.trace.marks
    whole = len(LONG) * SECONDS_PER_CHARACTER
    spoken = marks["audio_sent"] - marks["filler"]
    assert spoken < min(whole - 0.5, marks["first_clause"] - marks["filler"] + 1.0)
    assert begin == pytest.approx(marks["filler"], abs=0.1)
    assert heard(conversation) == ["Here it is."]


@pytest.mark.parametrize("tool_s", [0.5, 0.8, 1.1, 1.4])
def test_long_filler_of_a_tool_ends_with_a_word_once_the_result_is_there(tool_s: float) -> None:
    conversation = talk(agent_with(tool_s, fillers=(LONG,)), "@look {}", "It is found.")
    (called,) = conversation.when(ReplyCalled)
    (answered,) = conversation.when(ReplyText)
    assert answered < called + tool_s + 1.0, "after a word, and what was sent ahead"
    (begin, end), *later = sounds(conversation)
    assert not later and end - begin < len(LONG) * SECONDS_PER_CHARACTER, "the answer follows at once"
    assert heard(conversation) == ["It is found."]


def test_out_of_band_reply_is_no_answer_that_the_caller_waits_for() -> None:
    llm = ScriptedLlm(["Here it is."], 3.0, 0.0)
    conversation = Talk("look it up", llm=llm, agent=agent_with())
    conversation.says(0.6, at=0.5)
    note = ReplyRequest(words="A note for the screen.", remembered=False, speaks=False)
    conversation.does(lambda session: session.respond(note), at=1.8)
    conversation.run(16.0)
    assert "A note for the screen." in [event.text for event in conversation.of(ReplyText)]
    assert len(sounds(conversation)) == 2, "a filler, and the answer"


def test_answer_that_comes_soon_has_no_filler() -> None:
    conversation = talk(agent_with(), "Here it is.", first=0.3)
    assert len(sounds(conversation)) == 1 and heard(conversation) == ["Here it is."]


def test_words_of_the_model_before_a_tool_count_as_a_filler() -> None:
    conversation = talk(agent_with(1.0), "Let me look. @look {}", "It is found.")
    assert heard(conversation) == ["Let me look.", "It is found."] and len(sounds(conversation)) == 2


def test_each_filler_is_said_once_for_one_answer() -> None:
    conversation = talk(agent_with(3.8), "@look {}", "It is found.")
    assert len(sounds(conversation)) == 3 and heard(conversation) == ["It is found."]
    assert max(silences(conversation)) < 2.0


def test_agent_without_fillers_is_silent() -> None:
    conversation = talk(agent_with(2.0, fillers=()), "@look {}", "It is found.")
    assert len(sounds(conversation)) == 1


def test_caller_who_speaks_over_a_filler_is_answered() -> None:
    conversation = talk(agent_with(3.0), "@look {}", "Yes?", says=(0.5, 2.1))
    assert heard(conversation)[-1] == "Yes?"
    assert not conversation.session.history.pending


def test_fillers_are_a_sequence() -> None:
    with pytest.raises(TypeError, match=r"it must be a sequence of texts, such as \('One moment.',\)"):
        Agent(fillers="One moment.")
