"""A sound that stopped the agent and was no request: the agent goes on with what was not heard."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from rejoinder import Agent
from rejoinder.agent.simulate.scenario import Talk
from rejoinder.models.scripted import ScriptedLlm
from rejoinder.pipeline import (
    EndOfTurn,
    Endpointing,
    NothingSaid,
    Options,
    OverlapEnded,
    ReplyStarted,
    Session,
    SpeechStarted,
)
from rejoinder.pipeline.replying.next.false_interruption import GO_ON_CUE
from rejoinder.pipeline.turns.interruption import is_fragment

STORY = (
    "It is sunny today. Take a hat, if you go out. There is some wind at noon, and it turns cold at night."
)
QUESTION = "what is the weather"


def stopped_by(line: str, *more: str, seconds: float = 1.9, at: float = 3.0, **options: Any) -> Talk:
    """Return a conversation in which a long sound stops the agent. line: its transcript."""
    talk = Talk(QUESTION, line, *more, replies=(STORY, "Fine."), **options)
    talk.says(1.2, at=0.2)
    talk.says(seconds, at=at)
    return talk


@pytest.mark.parametrize("holds", [True, False])
@pytest.mark.parametrize("line", ["", "(laughs)", "Mm-hm.", "Yeah, right."])
def test_the_agent_says_the_words_that_were_not_heard(line: str, holds: bool) -> None:
    talk = stopped_by(line, holds_audio=holds).run(until=16.0)
    (_, status, heard), (_, completed, rest) = talk.done()
    assert (status, completed) == ("cancelled", "completed")
    assert heard and rest and f"{heard} {rest}" == STORY
    assert len(talk.llm.prompts) == 1, "the language model is not asked again"


def test_the_history_has_each_word_once_and_the_words_of_the_turn_between() -> None:
    talk = stopped_by("Mm-hm.").run(until=16.0)
    assert [role for role, _ in talk.said()] == ["user", "assistant", "user", "assistant"]
    first, second = (text for role, text in talk.said() if role == "assistant")
    assert f"{first.removesuffix('—')} {second}" == STORY


def test_it_goes_on_a_second_after_a_sound_without_words() -> None:
    talk = stopped_by("", endpointing=Endpointing()).run(until=16.0)
    (over,) = talk.when(NothingSaid)
    assert 1.0 <= over - 4.9 < 1.1
    assert talk.when(ReplyStarted)[-1] == over


@pytest.mark.parametrize("line", ["Stop.", "Okay, but what about tomorrow?"])
def test_words_are_answered(line: str) -> None:
    talk = stopped_by(line).run(until=16.0)
    assert talk.done()[-1][1:] == ("completed", "Fine.")


def test_the_user_can_stop_the_rest_too() -> None:
    talk = stopped_by("", "Stop, please.")
    talk.says(1.2, at=7.1)
    talk.run(until=16.0)
    assert [status for _, status, _ in talk.done()] == ["cancelled", "cancelled", "completed"]
    assert talk.done()[-1][2] == "Fine."


def test_a_second_sound_stops_the_rest_and_the_agent_goes_on_again() -> None:
    talk = stopped_by("", "(laughs)")
    talk.says(1.9, at=6.8)
    talk.run(until=20.0)
    assert [status for _, status, _ in talk.done()] == ["cancelled", "cancelled", "completed"]
    assert " ".join(heard for _, _, heard in talk.done()) == STORY


def test_a_model_that_still_writes_is_asked_to_go_on_after_silence_only() -> None:
    """The rest is not known: the words of a turn are answered, and a turn without words gets a cue."""
    talk = stopped_by("", llm=ScriptedLlm([STORY, "Fine."], each=0.4)).run(until=16.0)
    assert [message["content"] for message in talk.llm.prompts[-1]][-1] == GO_ON_CUE
    talk = stopped_by("Yeah.", llm=ScriptedLlm([STORY, "Fine."], each=0.4)).run(until=16.0)
    assert [message["content"] for message in talk.llm.prompts[-1]][-1] == "Yeah."


@pytest.mark.parametrize("holds", [True, False])
@pytest.mark.parametrize(
    ("seconds", "asks"), [(0.4, "Shall I book it now?"), (1.9, "Shall I book it? It costs nine dollars.")]
)
def test_yes_is_an_answer_where_the_agent_asked(seconds: float, asks: str, holds: bool) -> None:
    """Over the last words of the question, and after it in the same reply."""
    answered = 0
    for at in (2.2, 2.4, 2.6, 2.8, 3.0):
        talk = Talk(QUESTION, "Yes, sure.", replies=(asks, "Done."), holds_audio=holds)
        talk.says(1.2, at=0.2)
        talk.says(seconds, at=at)
        talk.run(until=12.0)
        if len(talk.of(EndOfTurn)) > 1:
            answered += 1
            assert talk.done()[-1][1:] == ("completed", "Done."), talk.timeline()
    assert answered >= 2, "most of them are turns"


LONG = " ".join(f"This is sentence number {name}." for name in ("one", "two", "three", "four", "five", "six"))


@pytest.mark.parametrize("line", ["", "Mm-hm."])
def test_given_words_go_on_where_they_stopped_while_most_of_them_wait_for_the_voice(line: str) -> None:
    talk = Talk(line, greeting=LONG, llm=ScriptedLlm(["Fine."]))
    talk.says(1.9, at=1.0)
    talk.run(until=30.0)
    assert [status for _, status, _ in talk.done()] == ["cancelled", "completed"]
    assert " ".join(heard for _, _, heard in talk.done()) == LONG
    assert not talk.llm.prompts


def test_a_long_rest_that_is_stopped_goes_on_again() -> None:
    talk = Talk("", "", greeting=LONG, llm=ScriptedLlm(["Fine."]))
    talk.says(1.9, at=1.0)
    talk.says(1.9, at=6.0)
    talk.run(until=30.0)
    assert [status for _, status, _ in talk.done()] == ["cancelled", "cancelled", "completed"]
    assert " ".join(heard for _, _, heard in talk.done()) == LONG
    assert not talk.llm.prompts


@pytest.mark.parametrize("does", ["types", "deletes"])
def test_a_client_that_changes_the_conversation_meanwhile_keeps_the_agent_stopped(does: str) -> None:
    talk = stopped_by("")

    def act(session: Session) -> None:
        if does == "types":
            session.add_text("and tomorrow?")
        else:
            session.remove(("reply", 1))

    talk.does(act, at=4.85)
    talk.run(until=16.0)
    assert [status for _, status, _ in talk.done()] == ["cancelled"]


def test_a_reply_that_the_client_asks_for_meanwhile_is_not_cut_off_by_the_rest() -> None:
    talk = stopped_by("")

    def act(session: Session) -> None:
        session.configure(replace(session.options, interrupt_response=False))
        session.respond()

    talk.does(act, at=4.0)
    talk.run(until=16.0)
    assert [(status, heard) for _, status, heard in talk.done()][1:] == [("completed", "Fine.")]


def test_what_was_not_heard_at_all_is_asked_again_as_it_was() -> None:
    """The question is answered, not a cue: knowledge and the request's own settings stay."""
    talk = stopped_by("", at=1.75, llm=ScriptedLlm([STORY, "Fine."], first=3.0)).run(until=16.0)
    assert [prompt[-1]["content"] for prompt in talk.llm.prompts] == [QUESTION, QUESTION]
    assert talk.done()[-1][1] == "completed"


def test_while_a_tool_runs_nothing_goes_on() -> None:
    agent: Agent[None, None] = Agent("You answer.", filler_after_s=0.3)

    @agent.tool
    async def weather() -> str:
        """Look up the weather."""
        await asyncio.sleep(3.5)
        return "sunny"

    llm = ScriptedLlm(["@weather {}", "It is sunny.", "Fine."])
    talk = Talk(QUESTION, "", llm=llm, agent=agent)
    talk.says(1.2, at=0.2)
    talk.says(1.9, at=2.6)
    talk.run(until=16.0)
    assert len(llm.prompts) == 2 and GO_ON_CUE not in str(llm.prompts)
    assert talk.done()[-1][2] == "It is sunny."


def test_a_client_that_stops_the_agent_keeps_it_stopped() -> None:
    talk = stopped_by("")
    talk.does(lambda session: session.interrupt(), at=4.85)
    talk.run(until=16.0)
    assert [status for _, status, _ in talk.done()] == ["cancelled"]


def test_words_are_not_marked_as_cut_off_where_nothing_was_said_in_between() -> None:
    talk = stopped_by("").run(until=16.0)
    assert not any("—" in text for _, text in talk.said())


def test_without_replies_of_its_own_the_agent_waits_for_the_client() -> None:
    talk = stopped_by("")
    talk.does(lambda session: session.configure(Options(create_response=False)), at=2.9)
    talk.run(until=16.0)
    assert [status for _, status, _ in talk.done()] == ["cancelled"]
    assert talk.said()[-1][1].endswith("—"), "the words are cut off: nothing follows them"


def test_a_turn_that_the_client_drops_leaves_the_agent_stopped() -> None:
    talk = stopped_by("")
    talk.does(lambda session: session.clear_audio(), at=4.85)
    talk.run(until=16.0)
    assert [status for _, status, _ in talk.done()] == ["cancelled"]


def test_a_fragment_is_an_interruption_only_if_more_follows() -> None:
    """An "uh-huh" that was recognised as "If I..." costs a pause, and neither the reply nor a turn."""
    talk = stopped_by("If I...", seconds=0.4).run(until=16.0)
    assert talk.done() == [(1, "completed", STORY)]
    assert talk.when(OverlapEnded)[0] < 4.3
    talk = stopped_by("If I...", "If I go tomorrow?", seconds=0.4)
    talk.says(0.7, at=3.8)
    talk.run(until=16.0)
    assert talk.done()[0][1] == "cancelled" and len(talk.of(SpeechStarted)) == 2


def test_fragments() -> None:
    assert all(map(is_fragment, ["If I...", "And the", "I", "Because,", "To-"]))
    assert not any(map(is_fragment, ["Wait...", "No", "What", "But I", "Tuesday.", "If I go to", "Stop"]))
