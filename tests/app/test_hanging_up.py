"""An agent ends the call, after the last word was heard; in virtual time."""

from __future__ import annotations

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.call import Call
from rejoinder.agent.app.runs import CANCELLED, SLOW_S
from rejoinder.agent.simulate.scenario import Talk
from rejoinder.models.scripted import ScriptedLlm
from rejoinder.pipeline import ReplyAudio, ReplyDone

LONG = "Thank you very much for your call and for your patience, and do come again some day soon. Goodbye!"


def leaving(say: str, kept: bool = False) -> tuple[Agent, list[str]]:
    agent, ended = Agent(), list[str]()

    @agent.tool(keep_on_interrupt=kept)
    async def leave(call: Call) -> None:
        """End the call."""
        await call.hang_up(say=say)

    @agent.on_end
    async def note(call: Call) -> None:
        ended.append(call.ended)

    return agent, ended


def talk(agent: Agent, *replies: str, says: tuple[float, ...] = (0.5,), until: float = 20.0) -> Talk:
    conversation = Talk(*["bye"] * len(says), llm=ScriptedLlm(list(replies), 0.08, 0.0), agent=agent)
    for at in says:
        conversation.says(0.6, at=at)
    return conversation.run(until)


def heard(conversation: Talk) -> list[str]:
    return [done.heard for done in conversation.of(ReplyDone) if done.heard]


def plays_until(conversation: Talk) -> float:
    """Return the time at which the last audio has played."""
    ends = 0.0
    for at, event in conversation.log:
        if isinstance(event, ReplyAudio):
            ends = max(ends, at) + event.chunk.seconds
    return ends


def test_goodbye_of_the_model_is_heard_to_its_end() -> None:
    agent, ended = leaving("")
    conversation = talk(agent, f"{LONG} @leave {{}}")
    assert heard(conversation) == [LONG] and conversation.hung_up
    at, reason = conversation.hung_up
    assert 0.0 <= at - plays_until(conversation) < 0.2
    assert ended == [reason] == ["the agent has ended the call"]


def test_goodbye_longer_than_a_slow_tool_is_followed_by_nothing() -> None:
    agent, _ = leaving(LONG)
    conversation = talk(agent, "@leave {}", "Are you still there?")
    assert heard(conversation) == [LONG] and conversation.hung_up
    assert conversation.hung_up[0] > 1.5 + SLOW_S
    assert 0.0 <= conversation.hung_up[0] - plays_until(conversation) < 0.2


def test_caller_who_speaks_over_the_goodbye_is_listened_to_and_stays() -> None:
    agent, ended = leaving(LONG)
    conversation = talk(agent, "@leave {}", "Of course.", "Of course.", says=(0.5, 3.0), until=12.0)
    assert conversation.hung_up is None and ended == ["the client has left"]
    cut, answer = heard(conversation)
    assert cut != LONG and LONG.startswith(cut) and answer == "Of course."
    results = [entry.text for entry in conversation.session.history.entries if entry.role == "tool"]
    assert results == [CANCELLED]


def test_kept_tool_hangs_up_once_the_caller_was_listened_to() -> None:
    agent, _ = leaving(LONG, kept=True)
    conversation = talk(agent, "@leave {}", "Of course.", "Of course.", says=(0.5, 3.0))
    assert heard(conversation)[1:] == ["Of course."]
    assert conversation.hung_up and 0.0 <= conversation.hung_up[0] - plays_until(conversation) < 0.2


def test_tool_of_a_discarded_answer_does_not_hang_up() -> None:
    """The end of the turn was guessed, and the caller went on: no faults of a dropped guess."""
    agent, _ = leaving("Goodbye!")
    conversation = talk(agent, "@leave {}", "Sure.", says=(0.5, 1.25), until=3.0)
    assert len(conversation.llm.prompts) > 1, "there was a guess"
    assert conversation.hung_up and conversation.hung_up[0] > 2.0
    assert heard(conversation) == ["Goodbye!"]
