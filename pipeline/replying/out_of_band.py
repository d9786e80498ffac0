"""Replies beside the conversation: nobody's turn, no part of the history, and no speech stops them."""

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

MAX_ASIDES = 4
"""At once, of one session: each is a request to the language model."""


class OutOfBandReplies:
    """The replies of one session that are beside its conversation, each over when its task is.

    see_off: takes the tasks that are cancelled and not gone yet.
    """

    def __init__(
        self,
        models: Models,
        out: Channel[Event],
        emit: Callable[[Event], None],
        see_off: Callable[[asyncio.Task[None]], None],
    ) -> None:
        self._models = models
        self._out = out
        self._emit = emit
        self._see_off = see_off
        self._turns: dict[int, Turn] = {}

    def start(self, turn: Turn, messages: Sequence[Message]) -> None:
        """Start one, committed as it is asked for. Raises Overloaded where there are too many."""
        if len(self._turns) == MAX_ASIDES:
            raise Overloaded(f"{MAX_ASIDES} replies beside the conversation run already")
        self._turns[turn.id] = turn
        turn.task = asyncio.create_task(self._run(turn, messages), name=f"aside-{turn.id}")
        self._emit(ReplyStarted(turn.id, turn.tag, turn.speaks))
        turn.commit()

    def cancel(self, id_: int) -> None:
        """Stop one, if it is not over."""
        if turn := self._turns.pop(id_, None):
            turn.cancel()
            if turn.task is not None:
                self._see_off(turn.task)
            played = turn.playout.played(asyncio.get_running_loop().time())
            self._emit(over(turn, self._models.llm, "cancelled", played))

    def pause(self) -> None:
        """Hold those that run."""
        for turn in self._turns.values():
            turn.pause()

    def resume(self) -> None:
        """Let them go on."""
        for turn in self._turns.values():
            turn.resume()

    def close(self) -> None:
        """Stop all."""
        for id_ in list(self._turns):
            self.cancel(id_)

    async def _run(self, turn: Turn, messages: Sequence[Message]) -> None:
        status = await attempt(turn, self._models, messages, self._out)
        if self._turns.pop(turn.id, None) is None:  # it failed while being cancelled
            return
        for call in turn.calls if status == "completed" else []:
            self._emit(ReplyCalled(turn.id, call))
        self._emit(over(turn, self._models.llm, status, turn.playout.seconds))
