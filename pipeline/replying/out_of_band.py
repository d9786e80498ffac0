"""Out-of-band replies: they do not take the floor or enter the history, and speech does not stop them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rejoinder.pipeline.channel import Channel
from rejoinder.pipeline.errors import Overloaded
from rejoinder.pipeline.events import Event, ReplyCalled, ReplyStarted
from rejoinder.pipeline.options import Models
from rejoinder.pipeline.replying.cancelled_tasks import CancelledTasks
from rejoinder.pipeline.replying.reply import Reply
from rejoinder.pipeline.replying.running import attempt, reply_done

MAX_OUT_OF_BAND = 4
"""Most out-of-band replies of one session at a time; each is a request to the language model."""


class OutOfBandReplies:
    """The out-of-band replies of one session.

    emit: takes their events, except text and audio, which wait for room in ``out``.
    cancelled: takes the task of each cancelled reply.
    """

    def __init__(
        self,
        models: Models,
        out: Channel[Event],
        emit: Callable[[Event], None],
        cancelled: CancelledTasks,
    ) -> None:
        self._models = models
        self._out = out
        self._emit = emit
        self._cancelled = cancelled
        self._replies: dict[int, Reply] = {}

    def use(self, models: Models) -> None:
        """Use other models for the replies that start from now on."""
        self._models = models

    def start(self, reply: Reply, tag: int) -> None:
        """Start a reply and commit it at once. Raises Overloaded if ``MAX_OUT_OF_BAND`` run already.

        tag: of ReplyStarted.
        """
        if len(self._replies) == MAX_OUT_OF_BAND:
            raise Overloaded(f"{MAX_OUT_OF_BAND} out-of-band replies run already: wait until one is done")
        self._replies[reply.id] = reply
        reply.start(self._run(reply), f"out-of-band-{reply.id}")
        self._emit(ReplyStarted(reply.id, tag, reply.settings.speaks, out_of_band=True))
        reply.commit()

    def cancel(self, id_: int) -> None:
        """Stop the reply with this number, if it runs."""
        if reply := self._replies.pop(id_, None):
            reply.cancel()
            if reply.task is not None:
                self._cancelled.add(reply.task)
            reply.outcome.cancel()
            played = reply.output.playout.played(asyncio.get_running_loop().time())
            self._emit(reply_done(reply, self._models.llm, played))

    def pause(self) -> None:
        """Pause all replies."""
        for reply in self._replies.values():
            reply.output.pause()

    def resume(self) -> None:
        """Resume all replies."""
        for reply in self._replies.values():
            reply.output.resume()

    def close(self) -> None:
        """Stop all replies."""
        for id_ in list(self._replies):
            self.cancel(id_)

    async def _run(self, reply: Reply) -> None:
        error = await attempt(reply, self._models, self._out)
        if self._replies.pop(reply.id, None) is None:  # it ended while it was being cancelled
            return
        reply.outcome.end(error)
        if reply.outcome.status == "completed":
            for call in reply.generation.calls:
                self._emit(ReplyCalled(reply.id, call))
        self._emit(reply_done(reply, self._models.llm, reply.output.playout.seconds))
