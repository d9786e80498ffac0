"""One conversation, interrupted and closed at every 10 ms: whatever the instant, the same things are true."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from rejoinder.agent.simulate.scenario import CHUNK_SECONDS, Talk
from rejoinder.pipeline import (
    EndOfTurn,
    Floor,
    OverlapEnded,
    OverlapStarted,
    ReplyAudio,
    ReplyDone,
    ReplyStarted,
    ReplyText,
    Session,
    SpeechStarted,
)
from rejoinder.pipeline.replying.reply import Reply

REPLY = "It is fine. Take a hat."
INSTANTS = [tick / 100 for tick in range(0, 240)]
"""From before the first word, over the pause, the guess, the commit and both clauses, to after the end."""
END = 2.4
SPEECH_END = 0.5
"""When the user of ``talk_of`` stops speaking; the floor is in doubt from there to the commit."""
SETTLED_SECONDS = 0.4
"""Once the floor was free and no reply was left for as long, nothing happens before the next sound or act."""
TOLD = ReplyStarted | ReplyText | ReplyAudio | ReplyDone


def talk_of(*lines: str) -> Talk:
    talk = Talk(*lines, replies=(REPLY, "Fine."))
    talk.says(0.4, at=0.1)
    return talk


def run_out(talk: Talk, after: float, limit: float, look: Callable[[Session], None] | None = None) -> Talk:
    """Hold a conversation until nothing more can happen, at the earliest ``after``, at the latest ``limit``.

    after: in seconds, the end of the last sound and act. look: is called with the session at the end.
    """

    async def settle(session: Session) -> None:
        loop = asyncio.get_running_loop()
        busy = after
        while loop.time() < min(limit, busy + SETTLED_SECONDS):
            await asyncio.sleep(CHUNK_SECONDS)
            if session.reply is not None or session.floor.floor is not Floor.NOBODY:
                busy = loop.time()
        if look is not None:
            look(session)

    talk.does(settle, at=after)
    return talk.run(until=after)


def check_history(talk: Talk, at: float, user: str = "hello") -> None:
    """Hold that the history has the user's words once if they were answered, and what was heard by ``at``."""
    said = talk.said()
    assert [words for role, words in said if role == "user"] == [user] * len(talk.of(EndOfTurn))
    replies = [entry for entry in talk.session.history.entries if entry.role == "assistant"]
    for entry in replies:
        whole = entry.text == REPLY and not entry.cut
        assert whole or entry.text in (talk.heard(entry.turn, at - 0.002), talk.heard(entry.turn, at))
    heard_of = {turn for turn in range(1, 9) if talk.heard(turn, at - 0.002)}
    assert heard_of <= {entry.turn for entry in replies}
    for prompt in talk.llm.prompts:
        assert " ".join(message["content"] for message in prompt if message["role"] == "user") == user


def test_the_instants_cover_the_conversation() -> None:
    talk = talk_of("hello").run(until=END)
    assert talk.when(SpeechStarted)[0] > INSTANTS[0]
    assert talk.when(ReplyDone)[0] + 0.2 < INSTANTS[-1]
    assert talk.said() == [("user", "hello"), ("assistant", REPLY)]


@pytest.mark.parametrize("first", range(10))
def test_interrupted_at_any_instant(first: int) -> None:
    for at in INSTANTS[first::10]:
        talk = talk_of("hello")
        cut: list[Reply | None] = []

        def interrupt(session: Session, cut: list[Reply | None] = cut) -> None:
            cut.append(session.reply)
            session.interrupt()

        def settled(session: Session, talk: Talk = talk) -> None:
            assert (session.reply, len(session._replies.cancelled)) == (None, 0)
            assert (talk.llm.open, talk.tts.open) == (0, 0)

        talk.does(interrupt, at=at)
        run_out(talk, max(at, SPEECH_END), max(at + 2.5, END), settled)
        (reply,) = cut
        told = [
            when for when, event in talk.log if isinstance(event, TOLD) and reply and event.turn == reply.id
        ]
        assert max(told, default=0.0) <= at + 1e-9, at
        assert len(talk.of(EndOfTurn)) == len(talk.of(ReplyStarted)) == len(talk.of(ReplyDone)) == 1
        check_history(talk, at if told else 99.0)


@pytest.mark.parametrize("first", range(10))
def test_closed_at_any_instant(first: int) -> None:
    for at in INSTANTS[first::10]:
        talk = talk_of("hello").run(until=at)
        assert all(when <= at + 1e-9 for when, _ in talk.log)
        check_history(talk, at)


@pytest.mark.parametrize("first", range(3))
def test_spoken_into_at_any_instant(first: int) -> None:
    for at in INSTANTS[75 + 2 * first :: 6]:
        talk = talk_of("hello", "stop it")
        talk.says(0.4, at=at)
        run_out(talk, at + 0.4, at + 3.0)
        interrupted = talk.when(SpeechStarted)[-1]
        heard = {talk.heard(1, interrupted - 0.002), talk.heard(1, interrupted)} - {""}
        answered = talk.llm.prompts[-1]
        if heard and heard <= {"It"}:  # so little that both are one turn
            assert answered == [{"role": "user", "content": "hello stop it"}], at
            continue
        assert answered[-1] == {"role": "user", "content": "stop it"} or not heard
        if REPLY not in heard:
            told = {message["content"] for message in answered if message["role"] == "assistant"}
            assert told <= {text + "—" for text in heard}, at
            assert bool(told) >= (len(heard) == 1)
        assert talk.done()[-1][1] == "completed"


@pytest.mark.parametrize("holds", [True, False])
@pytest.mark.parametrize("first", range(3))
def test_coughed_over_at_any_instant(first: int, holds: bool) -> None:
    """Whatever the instant, the reply is heard to its end, sample by sample."""
    for at in INSTANTS[75 + 2 * first :: 6]:
        talk = Talk("hello", "", replies=(REPLY,), holds_audio=holds)
        talk.says(0.4, at=0.1)
        talk.says(0.2, at=at)
        run_out(talk, at + 0.2, at + 4.0)
        if len(talk.of(EndOfTurn)) == 1:  # else the cough was early enough to be part of the user's turn
            assert talk.said() == [("user", "hello"), ("assistant", REPLY)], at
            assert talk.done()[-1][1:] == ("completed", REPLY)
            assert len(talk.of(OverlapStarted)) == len(talk.of(OverlapEnded)), at
        assert talk.session.reply is None
        assert talk.session.floor.floor is Floor.NOBODY


@pytest.mark.parametrize("first", range(3))
def test_a_paused_reply_is_stopped_at_any_instant(first: int) -> None:
    """The client stops the agent while it is in doubt; what is said is the user's turn, or nothing."""
    for at in INSTANTS[170 + first : 220 : 3]:
        for line in ("", "okay"):
            talk = Talk("hello", line, replies=(REPLY, "Fine."))
            talk.says(0.4, at=0.1)
            talk.says(0.3, at=1.6)
            talk.does(lambda session: session.interrupt(), at=at)
            run_out(talk, max(1.9, at), 6.0)
            assert talk.session.floor.floor is Floor.NOBODY
            assert talk.session.reply is None
            assert len(talk.of(OverlapStarted)) == 1


@pytest.mark.parametrize("first", range(10))
def test_held_at_any_instant(first: int) -> None:
    """Its client is gone for half a second: nothing is said meanwhile, and all of it in the end."""

    def hold(session: Session) -> None:
        session.hold(asyncio.get_running_loop().time())

    def release(session: Session) -> None:
        session.release()

    for at in INSTANTS[first::10]:
        talk = talk_of("hello")
        talk.does(hold, at=at)
        talk.does(release, at=at + 0.5)
        run_out(talk, at + 0.5, END + 1.5)
        told = [when for when, event in talk.log if isinstance(event, ReplyText | ReplyAudio)]
        assert [when for when in told if at + 1e-9 < when < at + 0.5 - 1e-9] == [], at
        assert [done.status for done in talk.of(ReplyDone)] == ["completed"]
        assert talk.said() == [("user", "hello"), ("assistant", REPLY)]
