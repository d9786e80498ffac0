"""Out-of-band replies: they do not take the floor or enter the history, and speech does not stop them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from rejoinder.pipeline.channel import Channel
from rejoinder.pipeline.errors import Overloaded
from rejoinder.pipeline.events import Event, ReplyCalled, ReplyStarted
from rejoinder.pipeline.interfaces import Message
from rejoinder.pipeline.options import Models
from rejoinder.pipeline.replying.stages import attempt, over
from rejoinder.pipeline.replying.turn import Turn

MAX_OUT_OF_BAND = 4
"""Most out-of-band replies of one session at a time; each is a request to the language model."""


class OutOfBandReplies:
    """The out-of-band replies of one session.

    emit: takes their events, except text and audio, which wait for room in ``out``.
    track_cancelled: takes the task of each cancelled reply, so that its end can be awaited.
    """

    def __init__(
        self,
        models: Models,
        out: Channel[Event],
        emit: Callable[[Event], None],
        track_cancelled: Callable[[asyncio.Task[None]], None],
    ) -> None:
        self._models = models
        self._out = out
        self._emit = emit
        self._track_cancelled = track_cancelled
        self._turns: dict[int, Turn] = {}

    def start(self, turn: Turn, messages: Sequence[Message]) -> None:
        """Start a reply and commit it at once. Raises Overloaded if ``MAX_OUT_OF_BAND`` run already."""
        if len(self._turns) == MAX_OUT_OF_BAND:
            raise Overloaded(f"{MAX_OUT_OF_BAND} out-of-band replies run already: wait until one is done")
        self._turns[turn.id] = turn
        turn.task = asyncio.create_task(self._run(turn, messages), name=f"out-of-band-{turn.id}")
        self._emit(ReplyStarted(turn.id, turn.tag, turn.speaks))
        turn.commit()

    def cancel(self, id_: int) -> None:
        """Stop the reply with this number, if it runs."""
        if turn := self._turns.pop(id_, None):
            turn.cancel()
            if turn.task is not None:
                self._track_cancelled(turn.task)
            played = turn.playout.played(asyncio.get_running_loop().time())
            self._emit(over(turn, self._models.llm, "cancelled", played))

    def pause(self) -> None:
        """Pause all replies."""
        for turn in self._turns.values():
            turn.pause()

    def resume(self) -> None:
        """Resume all replies."""
        for turn in self._turns.values():
            turn.resume()

    def close(self) -> None:
        """Stop all replies."""
        for id_ in list(self._turns):
            self.cancel(id_)

    async def _run(self, turn: Turn, messages: Sequence[Message]) -> None:
        status = await attempt(turn, self._models, messages, self._out)
        if self._turns.pop(turn.id, None) is None:  # it failed while it was being cancelled
            return
        for call in turn.calls if status == "completed" else []:
            self._emit(ReplyCalled(turn.id, call))
        self._emit(over(turn, self._models.llm, status, turn.playout.seconds))
