"""Says the fillers of one call: what happens goes to ``Fillers``, and what that decides to the session."""

from __future__ import annotations

import asyncio

from rejoinder.agent.app.call_line import SAID
from rejoinder.agent.app.fillers import Fillers
from rejoinder.agent.app.runs import ToolRuns
from rejoinder.pipeline import (
    RATE,
    EndOfTurn,
    Event,
    NothingSaid,
    ReplyAudio,
    ReplyDone,
    ReplyRequest,
    ReplyStarted,
    ReplyText,
    Session,
    SpeechStarted,
)


class Filling:
    """The fillers of one call. runs: its tools. While one runs, a filler is a reply of its own."""

    def __init__(self, fillers: Fillers, runs: ToolRuns) -> None:
        self._fillers = fillers
        self._runs = runs
        self._plays_until = 0.0

    @property
    def due(self) -> float | None:
        """The loop time at which ``passed`` has something to do, None for never."""
        return self._fillers.due

    def take(self, session: Session, happened: Event) -> None:
        """Take an event of the conversation."""
        fillers, now = self._fillers, _now()
        match happened:
            case EndOfTurn(_, at):
                fillers.turn_ended(now, now - max(0, session.received - at) / RATE)
            case SpeechStarted():
                fillers.forget()
            case NothingSaid() if self._runs.waiting:
                fillers.calling(now, now)
            case ReplyAudio(_, chunk):
                self._plays_until = max(self._plays_until, now) + chunk.seconds
                fillers.audio_until(self._plays_until)
            case ReplyText():
                fillers.spoke()
            case ReplyStarted():
                fillers.reply_started(now)
            case ReplyDone():
                if self._runs.waiting:
                    fillers.calling(now, max(now, self._plays_until))
                else:
                    fillers.returned()

    def passed(self, session: Session, now: float) -> None:
        """Say a filler if one is due at loop time ``now``."""
        if self._fillers.due is None or now < self._fillers.due:
            return
        if not session.may_fill and not (session.floor_is_free and self._runs.waiting):
            self._fillers.postpone(now)
        elif words := self._fillers.say(now):
            if session.may_fill:
                session.fill(words)
            else:
                self._runs.saying()
                session.respond(ReplyRequest(words=words, tag=SAID, is_filler=True))


def _now() -> float:
    return asyncio.get_running_loop().time()
