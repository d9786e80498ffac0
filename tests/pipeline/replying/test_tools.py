"""Replies that call tools, that are written, or stand beside the conversation, in virtual time."""

from __future__ import annotations

from typing import Any

import pytest

from rejoinder.agent.simulate.scenario import Talk
from rejoinder.models.scripted import ScriptedLlm, ScriptedTurnModel
from rejoinder.pipeline import (
    Entry,
    ReplyAudio,
    ReplyCalled,
    ReplyDone,
    ReplyRequest,
    ReplyStarted,
    ReplyText,
    Session,
    SpeechStarted,
    Tools,
)

WEATHER = Tools([{"type": "function", "function": {"name": "weather"}}])
CALL = '@weather {"city": "Rome"}'
STORY = "This is the first sentence of a story. And this is the second one of it."


def talk(*replies: str, **more: Any) -> Talk:
    return Talk("what is the weather", replies=replies, tools=WEATHER, **more)


def returns(text: str) -> Any:
    """The client has run the tool, and wants an answer that knows what it returned."""

    def act(session: Session) -> None:
        (call,) = [entry for entry in session.history.entries if entry.role == "call"]
        session.insert(Entry("tool", text, ("item", "result"), call=call.call), call.key)
        session.respond()

    return act


def test_a_tool_is_called_and_the_answer_knows_what_it_returned() -> None:
    call = talk(CALL, "It is sunny.")
    call.says(1.2, at=0.5)
    call.does(returns("sunny"), at=3.0)
    call.run(until=6.0)
    (called,) = call.of(ReplyCalled)
    assert (called.call.name, called.call.arguments) == ("weather", '{"city": "Rome"}')
    assert call.of(ReplyAudio)[0].turn == 2, "the call itself is not spoken"
    assert call.done() == [(1, "completed", ""), (2, "completed", "It is sunny.")]
    user, assistant, tool = call.llm.prompts[-1]
    assert user == {"role": "user", "content": "what is the weather"}
    assert assistant["tool_calls"][0]["function"] == {"name": "weather", "arguments": '{"city": "Rome"}'}
    assert tool == {"role": "tool", "content": "sunny", "tool_call_id": assistant["tool_calls"][0]["id"]}


def test_a_session_that_waits_for_a_tool_result_is_not_idle() -> None:
    """An idle line is read every 120 ms, which would delay the tool's result."""
    still: list[bool] = []
    call = talk(CALL, "It is sunny.")
    call.says(1.2, at=0.5)
    for at in (0.4, 3.0, 6.0):
        call.does(lambda session: still.append(session.idle), at=at)
    call.does(returns("sunny"), at=3.1)
    call.run(until=6.5)
    assert still == [True, False, True]


def test_a_call_waits_until_what_comes_with_it_was_said() -> None:
    call = talk(f"Let me see. {CALL}")
    call.says(1.2, at=0.5)
    call.run(until=5.0)
    order = [type(event) for _, event in call.log if isinstance(event, ReplyAudio | ReplyCalled | ReplyDone)]
    assert order[-2:] == [ReplyCalled, ReplyDone] and set(order[:-2]) == {ReplyAudio}
    prompt = call.session.history.messages()
    assert [message["role"] for message in prompt] == ["user", "assistant", "tool"]
    assert prompt[1]["content"] == "Let me see." and prompt[1]["tool_calls"]
    assert "no result" in prompt[2]["content"], "the model is told that it has called already"


def test_a_guess_calls_nothing() -> None:
    """The caller pauses for long enough that an answer is guessed, which calls, and then goes on."""
    call = talk(CALL, turn=ScriptedTurnModel(0.3))
    call.says(1.0, at=0.5)
    call.says(1.0, at=2.0)
    call.run(until=2.2)
    assert len(call.llm.prompts) >= 1, "there was a guess"
    assert call.of(ReplyStarted, ReplyCalled) == []
    assert [entry.role for entry in call.session.history.entries] == []


@pytest.mark.parametrize("at", [2.0, 2.4, 2.8])
def test_a_reply_that_is_interrupted_calls_nothing(at: float) -> None:
    call = talk(f"{STORY} {CALL}")
    call.says(1.0, at=0.3)
    call.says(1.2, at=at)
    call.run(until=at + 1.0)
    assert call.of(SpeechStarted)[1:], "it was interrupted"
    assert call.of(ReplyCalled) == []
    assert "call" not in [entry.role for entry in call.session.history.entries]


def test_a_reply_that_fails_calls_nothing() -> None:
    call = talk(llm=ScriptedLlm([f"one two three {CALL}"], fail_after=2))
    call.says(1.0, at=0.3)
    call.run(until=4.0)
    assert [status for _, status, _ in call.done()] == ["failed"] and call.of(ReplyCalled) == []


def test_a_model_without_tools_says_so() -> None:
    class Plain:
        def __init__(self) -> None:
            self.reply, self.warm, self.open = ScriptedLlm(["x"]).reply, ScriptedLlm().warm, 0

    call = talk(llm=Plain())
    call.says(1.0, at=0.3)
    call.run(until=3.0)
    (done,) = call.of(ReplyDone)
    assert done.status == "failed" and "cannot call tools" in done.error


def test_results_and_calls_in_odd_places_make_a_prompt_that_chat_servers_take() -> None:
    call = talk()
    entries = [
        Entry("tool", "early", call="a"),
        Entry("call", "{}", call="a", name="x"),
        Entry("call", "", call="b", name="y"),
        Entry("user", "and?"),
        Entry("tool", "late", call="b"),
        Entry("tool", "nobody's", call="c"),
    ]
    call.does(lambda session: session.respond(ReplyRequest(prompt=entries)), at=0.2)
    call.run(until=2.0, microphone=False)
    first, a, b, user = call.llm.prompts[0]
    assert [one["id"] for one in first["tool_calls"]] == ["a", "b"]
    assert first["tool_calls"][1]["function"]["arguments"] == "{}"
    assert [(one["tool_call_id"], one["content"]) for one in (a, b)] == [("a", "early"), ("b", "late")]
    assert user["content"] == "and?"


# --- written replies ------------------------------------------------------------------------------------


def test_a_written_reply_needs_no_voice() -> None:
    call = Talk("what is the weather", replies=("It is sunny today. ",), speaks=False)
    call.says(1.2, at=0.5)
    call.run(until=4.0)
    assert call.of(ReplyStarted) == [ReplyStarted(1, speaks=False)]
    assert "".join(event.text for event in call.of(ReplyText)) == "It is sunny today. "
    assert call.of(ReplyAudio) == [] and call.done() == [(1, "completed", "It is sunny today.")]
    assert call.said()[-1] == ("assistant", "It is sunny today.")


def test_a_written_reply_that_is_interrupted_keeps_what_was_sent() -> None:
    slow = ScriptedLlm([STORY], each=0.3)
    call = Talk("what is the weather", llm=slow, speaks=False)
    call.says(1.0, at=0.5)
    call.says(1.5, at=3.5)
    call.run(until=5.0)
    (done,) = call.of(ReplyDone)
    assert done.status == "cancelled"
    sent = "".join(event.text for event in call.of(ReplyText)).strip()
    assert done.heard == sent and STORY.startswith(sent) and sent != STORY
    assert ("assistant", sent + "—") in call.said()


# --- beside the conversation ----------------------------------------------------------------------------

BESIDE = ReplyRequest(prompt=[Entry("user", "mood?")], speaks=False, remembered=False, tag=7)


def test_an_out_of_band_reply_leaves_the_conversation_alone() -> None:
    call = Talk("what is the weather", replies=(STORY,))
    call.says(1.0, at=0.5)
    call.does(lambda session: session.respond(BESIDE), at=2.5)
    call.run(until=9.0)
    assert call.of(ReplyStarted) == [ReplyStarted(1), ReplyStarted(2, 7, False, True)]
    assert call.llm.prompts[-1] == [{"role": "user", "content": "mood?"}]
    done = {turn: (status, heard) for turn, status, heard in call.done()}
    assert done == {1: ("completed", STORY), 2: ("completed", STORY)}
    assert call.done()[0][0] == 2, "it did not wait for the other"
    assert call.said() == [("user", "what is the weather"), ("assistant", STORY)]


def test_it_is_stopped_by_its_number_and_by_the_end_of_the_call_only() -> None:
    call = Talk("what is the weather", replies=(STORY,), llm=ScriptedLlm([STORY], each=0.5))
    for _ in range(2):
        call.does(lambda session: session.respond(BESIDE), at=0.2)
    call.says(1.0, at=0.5)
    call.does(lambda session: session.interrupt(), at=2.5)
    call.does(lambda session: session.interrupt(1), at=3.0)
    call.does(lambda session: session.interrupt(9), at=3.0)
    call.run(until=3.5)
    assert [(turn, status) for turn, status, _ in call.done()][:2] == [(3, "cancelled"), (1, "cancelled")]
    assert call.of(ReplyText)[-1].turn == 2
