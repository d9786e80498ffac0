"""Fillers in a conversation, in virtual time: the caller hears something, and no word is lost or doubled."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from support.weather import Clerk

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.call import Call
from rejoinder.agent.app.tool import ToolError, Untold
from rejoinder.agent.simulate.scenario import Talk
from rejoinder.models.scripted import SECONDS_PER_CHARACTER, ScriptedLlm
from rejoinder.pipeline import (
    EndOfTurn,
    OverlapEnded,
    OverlapStarted,
    ReplyAudio,
    ReplyCalled,
    ReplyDone,
    ReplyRequest,
    ReplyStarted,
    ReplyText,
    SpeechStarted,
    TurnTraced,
)

FIRST, SECOND = "One moment.", "Let me see."


def words(talk: Talk) -> list[str]:
    """Return what the agent said in full, in order."""
    return [done.heard for done in talk.of(ReplyDone) if done.heard and done.status == "completed"]


def talk(seconds: float, *lines: str, thinks: float = 0.0, durable: bool = False, **more: Any) -> Talk:
    """Return a conversation whose tool takes ``seconds`` and whose model thinks for ``thinks`` before."""
    fillers = more.pop("fillers", (FIRST, SECOND))
    agent: Agent[None, None] = Agent(fillers=fillers, filler_after_s=more.pop("after", 1.2))

    @agent.tool(durable=durable)
    async def weather(call: Call, city: str) -> str:
        """Tell the weather."""
        await asyncio.sleep(seconds)
        return "sunny"

    llm = Clerk(thinks)
    return Talk(*(lines or ["what is the weather"]), llm=llm, agent=agent, **more)


def late(*answer: str, after: float = 2.0, **more: Any) -> Talk:
    """Return a conversation with an agent without tools, whose first token comes ``after`` seconds."""
    llm = ScriptedLlm(answer or ("It is sunny today.",), first=after)
    return Talk("what is the weather", llm=llm, agent=Agent(fillers=(FIRST, SECOND)), **more)


def seconds_of(talk: Talk, turn: int) -> float:
    return float(sum(event.chunk.seconds for event in talk.of(ReplyAudio) if event.turn == turn))


def first_audio(talk: Talk) -> float:
    return talk.when(ReplyAudio)[0]


# --- a tool runs ------------------------------------------------------------------------------------------


def test_tool_of_two_seconds_is_not_a_silence() -> None:
    """The caller hears something within half a second, and is never left in silence for long."""
    conversation = talk(2.0)
    conversation.says(0.6, at=0.5)
    conversation.run(8.0)
    begun = conversation.when(ReplyCalled)[0]
    assert first_audio(conversation) - begun < 0.5, "the caller hears something within 500 ms"
    assert conversation.longest_silence() < 1.5
    assert words(conversation) == ["It is sunny."]


def test_without_fillers_it_is_one() -> None:
    conversation = talk(2.0, fillers=())
    conversation.says(0.6, at=0.5)
    conversation.run(8.0)
    assert conversation.longest_silence() > 2.0


@pytest.mark.parametrize("thinks", [0.3, 0.9, 1.4])
def test_slow_model_around_a_tool_is_not_a_silence(thinks: float) -> None:
    conversation = talk(2.0, thinks=thinks)
    conversation.says(0.6, at=0.5)
    conversation.run(14.0)
    assert conversation.longest_silence() < 1.5
    assert words(conversation) == ["It is sunny."]


def test_fast_tool_has_no_filler() -> None:
    conversation = talk(0.2)
    conversation.says(0.6, at=0.5)
    conversation.run(5.0)
    assert [event.turn for event in conversation.of(ReplyStarted)] == [1, 2]
    assert seconds_of(conversation, 2) == pytest.approx(len("It is sunny.") * SECONDS_PER_CHARACTER)


def test_filler_is_in_no_history_prompt_or_event() -> None:
    conversation = talk(2.0)
    conversation.says(0.6, at=0.5)
    conversation.run(8.0)
    assert conversation.said() == [
        ("user", "what is the weather"),
        ("call", '{"city": "Rome"}'),
        ("tool", "sunny"),
        ("assistant", "It is sunny."),
    ]
    assert [event.text for event in conversation.of(ReplyText)] == ["It is sunny."]
    assert conversation.done() == [(1, "completed", ""), (2, "completed", "It is sunny.")]


def test_answer_cuts_the_filler_off() -> None:
    """The tool returns while the filler speaks: no more than what is sent ahead of it is heard."""
    conversation = talk(0.5, fillers=("One moment please, I am looking at the map of Italy.",))
    conversation.says(0.6, at=0.5)
    conversation.run(8.0)
    filler = seconds_of(conversation, 2) - len("It is sunny.") * SECONDS_PER_CHARACTER
    answered = conversation.when(ReplyText)[0]
    assert filler - (answered - first_audio(conversation)) <= 0.15
    assert words(conversation) == ["It is sunny."]


def test_second_filler_is_another_one() -> None:
    conversation = talk(3.5)
    conversation.says(0.6, at=0.5)
    conversation.run(9.0)
    filler = seconds_of(conversation, 2) - len("It is sunny.") * SECONDS_PER_CHARACTER
    assert filler == pytest.approx((len(FIRST) + len(SECOND)) * SECONDS_PER_CHARACTER, abs=0.01)
    assert conversation.longest_silence() < 1.5


def test_slow_tool_still_lets_the_agent_talk_on() -> None:
    conversation = talk(6.0)
    conversation.says(0.6, at=0.5)
    conversation.run(14.0)
    assert words(conversation) == ["I am still looking.", "It is sunny."]


def test_filler_goes_on_when_its_reply_calls_a_tool() -> None:
    """The model is late, and then it only calls a tool: the tool does not wait, and no word is cut."""
    conversation = talk(1.0, thinks=1.3, fillers=("One moment please, I am looking.",))
    conversation.says(0.6, at=0.5)
    conversation.run(12.0)
    called = conversation.when(ReplyCalled)[0]
    begun = next(at for at, event in conversation.log if isinstance(event, ReplyAudio))
    assert called - begun < 1.0, "the call does not wait for the end of the filler"
    filler = seconds_of(conversation, 1) + seconds_of(conversation, 2)
    filler -= len("It is sunny.") * SECONDS_PER_CHARACTER
    whole = len("One moment please, I am looking.") * SECONDS_PER_CHARACTER
    assert filler == pytest.approx(whole, abs=0.05)
    assert conversation.longest_silence() < 1.5


def test_filler_that_an_answer_has_cut_off_stays_so() -> None:
    """The answer's first words cut it off, and then the reply calls a tool."""
    agent: Agent[None, None] = Agent(fillers=("One moment please, I am looking.",))

    @agent.tool
    async def weather(call: Call, city: str) -> str:
        """Tell the weather."""
        await asyncio.sleep(1.0)
        return "sunny"

    llm = ScriptedLlm(('I see. @weather {"city": "Rome"}', "It is sunny."), first=1.4)
    conversation = Talk("what is the weather", llm=llm, agent=agent)
    conversation.says(0.6, at=0.5)
    conversation.run(10.0)
    assert words(conversation) == ["I see.", "It is sunny."]
    assert seconds_of(conversation, 2) == pytest.approx(len("It is sunny.") * SECONDS_PER_CHARACTER)


# --- a late answer ----------------------------------------------------------------------------------------


def test_late_answer_has_a_filler_in_the_same_reply() -> None:
    conversation = late()
    conversation.says(0.6, at=0.5)
    conversation.run(8.0)
    assert [event.turn for event in conversation.of(ReplyStarted)] == [1]
    assert conversation.done() == [(1, "completed", "It is sunny today.")]
    assert conversation.longest_silence() < 1.5


def test_answer_in_time_has_no_filler() -> None:
    conversation = late(after=0.5)
    conversation.says(0.6, at=0.5)
    conversation.run(6.0)
    assert seconds_of(conversation, 1) < 1.1


def test_trace_of_a_late_answer_counts_its_own_audio() -> None:
    conversation = late()
    conversation.says(0.6, at=0.5)
    conversation.run(8.0)
    marks = conversation.of(TurnTraced)[0].trace.marks
    assert marks["filler_sent"] < marks["first_token"] < marks["audio_sent"]


@pytest.mark.parametrize("cut_ms", range(2_400, 5_200, 50))
def test_heard_words_are_exact_wherever_the_answer_is_cut(cut_ms: int) -> None:
    """A filler before the answer moves no word: the history has what the caller's ear has."""
    conversation = late("It is sunny today and it will stay so until tomorrow.")
    conversation.says(0.6, at=0.5)
    conversation.does(lambda session: session.interrupt(), at=cut_ms / 1000)
    conversation.run(7.0)
    heard = conversation.heard(1, cut_ms / 1000)
    assert conversation.done() == [(1, "cancelled", heard)]
    assert [text.rstrip("—") for role, text in conversation.said() if role == "assistant"] == [heard][
        : bool(heard)
    ]


def test_client_that_truncates_counts_from_the_first_sample() -> None:
    conversation = late("It is sunny today and it will stay so.")
    conversation.says(0.6, at=0.5)
    found: list[str | None] = []
    filler = len(FIRST) * SECONDS_PER_CHARACTER
    heard = filler + len("It is sunny") * SECONDS_PER_CHARACTER + 0.01
    conversation.does(lambda session: found.append(session.truncate(1, heard)), at=4.4)
    conversation.run(7.0)
    assert found == ["It is sunny"]


def test_greeting_and_exact_words_have_no_filler() -> None:
    greeting, exact = "Hello, this is the weather.", "Just a second."
    conversation = late(greeting=greeting)
    conversation.does(lambda session: session.respond(ReplyRequest(words=exact)), at=4.0)
    conversation.run(8.0)
    assert [done.heard for done in conversation.of(ReplyDone)] == [
        "Hello, this is the weather.",
        "Just a second.",
    ]
    total = len("Hello, this is the weather.") + len("Just a second.")
    spoken = seconds_of(conversation, 1) + seconds_of(conversation, 2)
    assert spoken == pytest.approx(total * SECONDS_PER_CHARACTER, abs=0.1)


# --- the caller speaks ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("thinks", "durable"), [(0.0, False), (1.4, False), (0.0, True)])
@pytest.mark.parametrize("start_ms", range(1_000, 5_500, 50))
def test_interruption_loses_and_doubles_nothing(start_ms: int, thinks: float, durable: bool) -> None:
    """The caller speaks at every 50 ms of a call with fillers, a tool of 2 s and a quick or a slow model."""
    conversation = talk(2.0, "what is the weather", "and please hurry", thinks=thinks, durable=durable)
    conversation.says(0.6, at=0.5)
    conversation.says(0.6, at=start_ms / 1000)
    conversation.run(13.0 + 3 * thinks, rest=2.0)
    told = [one for one in words(conversation) if one == "It is sunny."]
    turns = len(conversation.of(EndOfTurn))
    assert 1 <= len(told) <= turns, f"told {len(told)} times: {conversation.timeline()}"
    results = [entry.call for entry in conversation.session.history.entries if entry.role == "tool"]
    assert len(results) == len(set(results)), "a result is in the history twice"
    assert not conversation.session.history.pending, "a result is missing"
    spoken = [at for at, event in conversation.log if isinstance(event, ReplyAudio)]
    begin, end = start_ms / 1000 + 0.3, start_ms / 1000 + 0.6
    assert not [at for at in spoken if begin < at < end], "the agent spoke over the caller"
    assert conversation.said()[-1][0] == "assistant", "the last words of the caller are answered"
    assert not any(word in text for _, text in conversation.said() for word in (FIRST, SECOND))


def test_noise_over_a_filler_pauses_it() -> None:
    conversation = talk(2.0, "what is the weather", "", holds_audio=True, fillers=("One moment, please.",))
    conversation.says(0.6, at=0.5)
    conversation.says(0.3, at=2.0)
    conversation.run(9.0)
    assert words(conversation) == ["It is sunny."]
    assert len(conversation.of(OverlapEnded)) == 1
    over = conversation.when(OverlapStarted)[0], conversation.when(OverlapEnded)[0]
    assert not [at for at in conversation.when(ReplyAudio) if over[0] < at < over[1]]
    filler = seconds_of(conversation, 2) - len("It is sunny.") * SECONDS_PER_CHARACTER
    assert filler == pytest.approx(len("One moment, please.") * SECONDS_PER_CHARACTER, abs=0.05)
    assert not [at for at in conversation.when(SpeechStarted) if at > 1.5]


@pytest.mark.parametrize("start_ms", range(1_500, 4_000, 100))
def test_agent_that_may_not_be_interrupted_answers_everything_once(start_ms: int) -> None:
    """The reply that a filler has begun does not keep the answer to the words over it waiting."""
    conversation = talk(
        2.0, "what is the weather", "and please hurry", interrupt_response=False, durable=True
    )
    conversation.says(0.6, at=0.5)
    conversation.says(0.6, at=start_ms / 1000)
    conversation.run(16.0, rest=2.0)
    assert "It is sunny." in words(conversation)
    assert conversation.session.at_rest and conversation.session.reply is None
    roles = [role for role, _ in conversation.said()]
    assert roles.count("user") == 2 and roles[-1] == "assistant"


def test_call_that_a_slow_tool_ends_is_over() -> None:
    agent: Agent[None, None] = Agent()

    @agent.tool
    async def weather(call: Call, city: str) -> str:
        """End the call, after a while."""
        await asyncio.sleep(1.5)
        call.hang_up("it is over")
        return "bye"

    conversation = Talk("what is the weather", llm=Clerk(), agent=agent)
    conversation.says(0.6, at=0.5)
    conversation.run(9.0)
    assert conversation.call.ended == "it is over"


@pytest.mark.parametrize("until_ms", range(1_400, 4_400, 100))
def test_caller_who_hangs_up_leaves_nothing_open(until_ms: int) -> None:
    """``run`` fails where a task or a request is left, or a reply has no end."""
    conversation = talk(2.0, thinks=0.3)
    conversation.says(0.6, at=0.5)
    conversation.run(until_ms / 1000)


def asking(function: Any) -> Talk:
    """Return a conversation in which the caller's words make the agent call ``weather``, this function."""
    agent: Agent[None, None] = Agent(fillers=(FIRST,))
    agent.tool(name="weather")(function)
    conversation = Talk("what is the weather", llm=Clerk(), agent=agent)
    conversation.says(0.6, at=0.5)
    return conversation


def test_result_that_is_not_told_ends_the_filler() -> None:
    async def weather(city: str) -> str:
        """Do something that the agent does not speak about."""
        await asyncio.sleep(0.6)
        return Untold("done")

    conversation = asking(weather)
    conversation.run(5.0)
    assert words(conversation) == []
    assert conversation.session.at_rest, "no reply waits for ever"


def test_action_of_a_slow_tool_does_not_wait_for_the_answer() -> None:
    """An action waits until the caller has heard what was said; nothing more is said after the filler."""
    waits: list[float] = []

    async def weather(call: Call, city: str) -> str:
        """Transfer the caller after a while; there is no line that could."""
        await asyncio.sleep(1.5)
        begun = asyncio.get_running_loop().time()
        with pytest.raises(ToolError):
            await call.transfer("+4930123456")
        waits.append(asyncio.get_running_loop().time() - begun)
        return "sunny"

    conversation = asking(weather)
    conversation.run(8.0)
    assert len(waits) == 1 and waits[0] < 0.2
    assert words(conversation) == ["It is sunny."]


def test_caller_on_hold_hears_no_filler() -> None:
    async def weather(city: str) -> str:
        """Take a while."""
        await asyncio.sleep(3.0)
        return "sunny"

    conversation = asking(weather)
    held: list[float] = []

    async def hold(session: Any) -> None:
        actions = conversation._agent._actions  # type: ignore[union-attr]
        assert actions is not None
        await actions.hold()
        held.append(asyncio.get_running_loop().time())
        await asyncio.sleep(2.0)
        await actions.resume()

    conversation.does(hold, at=1.5)
    conversation.run(10.0)
    assert [at for at in conversation.when(ReplyAudio) if held[0] < at < held[0] + 2.0] == []
    assert words(conversation) == ["It is sunny."]


def test_typed_words_replace_the_reply_that_a_filler_has_begun() -> None:
    conversation = talk(2.0)
    conversation.says(0.6, at=0.5)

    def type_in(session: Any) -> None:
        session.add_text("hello?")
        session.respond()

    conversation.does(type_in, at=2.2)
    conversation.run(9.0)
    assert "It is sunny." in words(conversation)
    assert conversation.session.at_rest
