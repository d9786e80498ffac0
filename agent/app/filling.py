"""Says the fillers of one call, and tells the results of tools in the reply that a filler has begun."""

from __future__ import annotations

import asyncio

from rejoinder.agent.app.fillers import Fillers
from rejoinder.agent.app.runs import ToolRuns
from rejoinder.pipeline import (
    RATE,
    EndOfTurn,
    Event,
    Floor,
    NothingSaid,
    ReplyDone,
    ReplyStarted,
    ReplyText,
    Session,
    SpeechStarted,
)


class Filling:
    """The fillers of one call: what happens goes to ``Fillers``, and what that decides to the session.

    While a tool runs there is no reply that could speak. The filler then begins the reply to the result. That
    reply gets its prompt once the result is there. runs: the tools of the call.
    """

    def __init__(self, fillers: Fillers, runs: ToolRuns) -> None:
        self._fillers = fillers
        self._runs = runs
        self._begun = 0
        self._waits = False

    @property
    def due(self) -> float | None:
        """The loop time at which ``passed`` has something to do, None for never."""
        return self._fillers.due

    def take(self, session: Session, happened: Event) -> bool:
        """Take an event of the session; return whether it is the start of a reply without a prompt yet."""
        fillers, now = self._fillers, _now()
        match happened:
            case EndOfTurn(_, at):
                fillers.turn_ended(now, now - max(0, session.received - at) / RATE)
            case SpeechStarted():
                fillers.forget()
                self.drop(session)  # it is gone already, unless the agent may not be interrupted
            case NothingSaid() if self._runs.waiting:
                fillers.calling(now, now)
            case ReplyText(turn) if _speaks(session, turn):
                fillers.spoke()
            case ReplyStarted(turn):
                if _speaks(session, turn):
                    fillers.reply_started(now)
                return turn == self._begun
            case ReplyDone(turn):
                if turn == self._begun:
                    self._waits = False
                if self._runs.waiting:
                    self._done(session, turn, now)
        return False

    def idle(self, session: Session, now: float) -> bool:
        """Return whether the session waits for a tool only, at loop time ``now``.

        Its reply has no prompt yet then, and the filler has played.
        """
        reply, floor = session.reply, session.floor.floor
        if not self._waits or reply is None or not _speaks(session, self._begun):
            return False
        return floor in (Floor.NOBODY, Floor.AGENT) and reply.output.playout.ends_at <= now

    def postpone(self, now: float) -> None:
        """Record that no filler can be said at loop time ``now``; try again soon."""
        if self._fillers.due is not None and self._fillers.due <= now:
            self._fillers.postpone(now)

    def passed(self, session: Session, now: float) -> None:
        """Say a filler if one is due at time ``now``."""
        if self._fillers.due is None or now < self._fillers.due:
            return
        if session.floor.floor is Floor.OVERLAP:  # a sound of the caller, which may be an interruption
            self._fillers.postpone(now)
        if (reply := session.reply) is not None:
            self._fillers.audio_until(reply.output.playout.ends_at)
        if (words := self._fillers.say(now)) and not self._fill(session, words):
            self._fillers.forget()

    def tell(self, session: Session, cue: str) -> bool:
        """Let the reply that a filler has begun tell the results; return whether there is one.

        cue: stands for the caller's words in its prompt, "" for none.
        """
        waits, self._waits = self._waits, False
        self._fillers.returned()
        return waits and session.proceed(self._begun, cue)

    def returned(self, session: Session) -> None:
        """Take the results of tools that another reply tells."""
        self.drop(session)
        self._fillers.returned()

    def drop(self, session: Session) -> None:
        """Stop the reply that a filler has begun and that has no prompt yet."""
        if self._waits and _speaks(session, self._begun):
            session.interrupt()
        self._waits = False

    def settle(self, session: Session) -> None:
        """Stop the reply that a filler has begun if no result of a tool is awaited that it could tell."""
        if not self._runs.waiting:
            self.drop(session)

    def _done(self, session: Session, turn: int, now: float) -> None:
        """Take the end of a reply, or of another one, while the conversation waits for a tool."""
        reply = session.reply if _speaks(session, turn) else None
        self._fillers.calling(now, max(now, reply.output.playout.ends_at) if reply else now)
        if reply and (cut := reply.output.filler):
            self._fill(session, *cut)  # the reply has called a tool: its filler goes on in the next one

    def _fill(self, session: Session, words: str, skip: float = 0.0) -> bool:
        if session.fill(words, skip):
            return True
        if self._runs.waiting and not self._waits and (begun := session.begin_reply()) is not None:
            self._begun, self._waits = begun, True
            return session.fill(words, skip)
        return False


def _speaks(session: Session, turn: int) -> bool:
    """Return whether a reply is the conversation's own, not one out of band."""
    return session.reply is not None and session.reply.id == turn


def _now() -> float:
    return asyncio.get_running_loop().time()
