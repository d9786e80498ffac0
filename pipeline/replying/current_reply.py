"""The reply that has the floor, or may get it: from its start to its last sample."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence

from rejoinder.pipeline.channel import Channel
from rejoinder.pipeline.events import Event, ReplyCalled, ReplyStarted, TurnTraced
from rejoinder.pipeline.options import Models
from rejoinder.pipeline.prompt import Key
from rejoinder.pipeline.replying.cancelled_tasks import CancelledTasks
from rejoinder.pipeline.replying.reply import Reply
from rejoinder.pipeline.replying.reply_records import ReplyRecords
from rejoinder.pipeline.replying.running import attempt, reply_done
from rejoinder.pipeline.replying.speculation import Speculation
from rejoinder.pipeline.turns.endpointer import Endpointer
from rejoinder.pipeline.words import normalise


class CurrentReply:
    """Starts, commits, pauses and cancels the reply of the conversation. There is at most one.

    All that a reply starts ends with its task. That task is in ``reply`` or in ``cancelled`` until it has
    ended. The methods do not wait, so the next prompt is built from a settled history.

    reply: the current reply, until it has played; None between replies.
    speculation: counts of the guesses.
    held: whether play-out is stopped because the client is disconnected.
    closed: number of the reply that the end of the session cut off, 0 for none.
    out: the session's events; it also stands for the session in the load shedder.
    emit: takes the events of the reply, except text and audio, which wait for room in ``out``.
    cancelled: takes the task of each cancelled reply.
    on_end: called when the reply has played to its end.
    """

    def __init__(
        self,
        models: Models,
        records: ReplyRecords,
        floor: Endpointer,
        out: Channel[Event],
        emit: Callable[[Event], None],
        cancelled: CancelledTasks,
        on_end: Callable[[], None],
    ) -> None:
        self.reply: Reply | None = None
        self.speculation = Speculation()
        self.held = False
        self.closed = 0
        self._models = models
        self._records = records
        self._floor = floor
        self._out = out
        self._emit = emit
        self._cancelled = cancelled
        self._on_end = on_end

    def use(self, models: Models) -> None:
        """Use other models for the replies that start from now on."""
        self._models = models

    @property
    def specs(self) -> Mapping[str, str]:
        """The spec of each model by role."""
        return self._models.specs

    @property
    def committed(self) -> bool:
        """Whether there is a reply, and it is committed."""
        return self.reply is not None and self.reply.committed

    def is_guess_for(self, text: str) -> bool:
        """Return whether the reply waits for its commit, and answers these words."""
        reply = self.reply
        return reply is not None and not reply.committed and normalise(reply.text) == normalise(text)

    def start(self, reply: Reply, warming: asyncio.Task[None] | None) -> None:
        """Make a reply the current one, and start it. warming: fills the language model's cache for it."""
        reply.mark("reply_started")
        self.reply = reply
        reply.start(self._run(reply, warming), f"reply-{reply.id}")

    def commit(self, reply: Reply, tag: int = 0, key: Key | None = None) -> None:
        """Commit the current reply. tag: of ReplyStarted. key: of the history entry with the user's words."""
        reply.trace.count(self.speculation.commit(reply.is_guess))
        reply.trace.count({"load_level": float(self._models.load_shedder.level)})
        self._records.begin(reply, key)
        self._floor.agent.started(reply.settings.interruptible)
        self._emit(ReplyStarted(reply.id, tag, reply.settings.speaks))
        if self.held or self._floor.agent_waits:
            reply.output.pause()
        reply.commit()

    def pause(self) -> None:
        """Pause the reply until it is known whether the sound over it is an interruption."""
        if self.reply is None or self.reply.output.complete:
            self._floor.agent.finishing()
        if self.reply is not None:
            self.reply.output.pause()

    def resume(self) -> None:
        """Resume the reply at the sample where it paused: the sound is no interruption so far."""
        if self.reply is not None and not self.held:
            self.reply.output.resume()

    def end_overlap(self) -> None:
        """Resume the reply, and count in its trace a sound over it that was no interruption."""
        self.resume()
        if self.reply is not None and not self.held:
            self.reply.trace.count({"false_interruptions": 1})
            if self.reply.trace.budget():  # otherwise the first audio sends it
                self._emit(TurnTraced(self.reply.trace))

    def cancel(self, superseded: bool = False, interrupted: bool = False) -> Reply | None:
        """Cancel the reply, and settle the history with the words that were heard; return a committed one.

        superseded: another reply replaces it; if all of its audio is sent, it still plays to its end.
        interrupted: the user's speech cancels it.
        """
        reply, self.reply = self.reply, None
        if reply is None or reply.task is None:
            return None
        if interrupted:
            reply.outcome.interrupt()
        reply.cancel()
        reply.release()
        self._cancelled.add(reply.task)
        if not reply.committed:
            if reply.is_guess:
                self.speculation.drop(reply.generation.tokens)
        elif superseded and reply.outcome.ended:
            self._records.settle(reply, reply.output.playout.seconds, cut=reply.outcome.broken_off)
        else:
            self._cut(reply)
        return reply if reply.committed else None

    def _cut(self, reply: Reply) -> None:
        playout, ended = reply.output.playout, reply.outcome.ended
        played = playout.played(_now())
        reply.output.cut()
        self._records.settle(reply, played, cut=not ended or played < playout.seconds)
        if not ended:
            reply.outcome.cancel()
            self._report(reply, played)

    def truncate(self, id: int, seconds: float) -> str | None:
        """Settle reply ``id`` at ``seconds`` played; cancel it if it runs. Return the heard text or None."""
        if self.reply and self.reply.id == id and self.reply.committed:
            self.cancel()  # the client has stopped its playback
            self._floor.agent.finished()
        return self._records.truncate(id, seconds)

    def close(self) -> None:
        """Cancel the reply, because the session ends. Another process may go on from this position."""
        if self.reply is not None and self.reply.committed:
            self.closed = self.reply.id
            self.reply.output.playout.stop(_now())  # the rest of the sent audio is not heard
        self.cancel()

    # --- a client that disconnects and returns ----------------------------------------------------------

    def hold(self, since: float) -> None:
        """Stop play-out until ``release``: nothing has been heard since time ``since``."""
        self.held = True
        if self.reply is not None:
            self.reply.output.playout.stop(since)
            self.reply.output.pause()

    def release(self) -> None:
        """Continue after ``hold``."""
        self.held = False
        if self.reply is not None:
            self.reply.output.resume()

    def play_again(self, replies: Sequence[Reply]) -> None:
        """Make the last of these ended replies the current one, until the client has played all of them."""
        self._floor.agent.started(replies[-1].settings.interruptible)
        self.reply = replies[-1]
        self.reply.start(self._replay(replies), f"reply-{self.reply.id}-again")

    async def _replay(self, replies: Sequence[Reply]) -> None:
        for reply in replies:
            await reply.output.wait_played()
            self._records.settle(reply, reply.output.playout.seconds, cut=reply.outcome.broken_off)
        self._end()

    # --- its task ---------------------------------------------------------------------------------------

    async def _run(self, reply: Reply, warming: asyncio.Task[None] | None) -> None:
        """Run a reply to its end. A guess may finish before its commit, and emits no events until then."""
        error = await attempt(reply, self._models, self._out, warming)
        if reply is not self.reply:  # it ended while it was being cancelled
            return
        await reply.gate.wait_committed()
        reply.outcome.end(error)
        played = reply.output.playout.seconds
        # Before the client can add an entry.
        self._records.settle(reply, played, cut=reply.outcome.broken_off)
        if reply.outcome.status == "completed":
            for call in self._records.add_calls(reply):
                self._emit(ReplyCalled(reply.id, call))
        self._report(reply, played)
        await reply.output.wait_played()  # sent audio plays, whatever the status
        reply.keep_answer()
        self._end()

    def _report(self, reply: Reply, played: float) -> None:
        if not reply.replayed and (seconds := reply.trace.making()):
            self._models.load_shedder.answered(id(self._out), seconds, _now())
        self._emit(reply_done(reply, self._models.llm, played))

    def _end(self) -> None:
        self.reply = None
        self._floor.agent.finished()
        self._on_end()


def _now() -> float:
    return asyncio.get_running_loop().time()
