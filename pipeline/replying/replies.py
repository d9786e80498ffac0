"""The agent's side of a conversation: one reply at a time, from its start to the words that were heard."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from rejoinder.pipeline.audio.echo import Echo
from rejoinder.pipeline.channel import Channel
from rejoinder.pipeline.engines.deadline import GUESS_SECONDS, PARTIAL_SECONDS, Deadline, current
from rejoinder.pipeline.engines.load_shedding import LoadLevel
from rejoinder.pipeline.errors import ProtocolError
from rejoinder.pipeline.events import Event, ReplyCalled, ReplyStarted, TurnTraced
from rejoinder.pipeline.history import History
from rejoinder.pipeline.interfaces import Message
from rejoinder.pipeline.listening.agreement import normalise
from rejoinder.pipeline.options import Models, Options, ReplyRequest
from rejoinder.pipeline.prompt import Key, prompt
from rejoinder.pipeline.replying.out_of_band import OutOfBandReplies
from rejoinder.pipeline.replying.speculation import Speculation
from rejoinder.pipeline.replying.stages import attempt, over
from rejoinder.pipeline.replying.turn import Turn
from rejoinder.pipeline.turns.endpointer import Endpointer, Floor

log = logging.getLogger(__name__)

MERGE_SECONDS = 0.3
"""An interrupted reply of which less was heard is not remembered: the user had not finished the turn."""


class Replies:
    """The replies of one session: the only place that starts, pauses and cancels one.

    All that a reply starts ends with its task. That task is in ``turn`` or in ``cancelled`` until it has
    ended. The methods do not wait, so the next prompt is built from a settled history. A *guess* is a reply
    that starts before the user's turn is over; it is not played until it is committed.

    options: the current options of the session.
    turn: the current reply, until it has played; None between replies.
    echo: receives the agent's audio to remove it from the microphone's; None if echo removal is off.
    cancelled: the cancelled tasks that have not ended.
    speculation: counts of the guesses.
    held: whether play-out is stopped because the client is disconnected.
    marks: times of the user's last pause, with which the trace of the reply begins.
    emit: takes the events of replies, except text and audio, which wait for room in ``out``.
    """

    def __init__(
        self,
        models: Models,
        options: Options,
        history: History,
        floor: Endpointer,
        out: Channel[Event],
        emit: Callable[[Event], None],
    ) -> None:
        self.options = options
        self.turn: Turn | None = None
        self.echo = Echo() if options.echo_gate else None
        self.cancelled: set[asyncio.Task[None]] = set()
        self.speculation = Speculation()
        self.held = False
        self.marks: dict[str, float] = {}
        self._models = models
        self._history = history
        self._floor = floor
        self._out = out
        self._emit = emit
        self._turns = 0
        self._out_of_band = OutOfBandReplies(models, out, emit, self._track_cancelled)
        self._settled: deque[Turn] = deque(maxlen=8)
        self._warming: asyncio.Task[None] | None = None
        self._reading = Deadline(PARTIAL_SECONDS)
        self._requested: ReplyRequest | None = None
        self._owed = False

    # --- which reply comes next -------------------------------------------------------------------------

    def warm(self, text: str) -> None:
        """Send the prompt to the language model's cache while the user still speaks."""
        if self.options.create_response and (self._warming is None or self._warming.done()):
            self._warming = asyncio.create_task(self._prefill(text, self._reading), name="warm")

    def guess(self, text: str) -> None:
        """Start a reply to a turn that is probably over. It waits for its commit."""
        wanted = self.options.speculate and self.options.create_response and not self._replying
        if wanted and not self._guessed(text):
            self.drop_guess()
            if self.speculation.may_start(self.options.max_guesses):
                self._start(text).guess = True

    def drop_guess(self) -> None:
        """Cancel the current reply if it is not committed."""
        if self.turn and not self.turn.committed:
            self._cancel()

    def end_turn(self, text: str, key: Key | None = None) -> None:
        """Answer the user's turn, or record it if replies are off.

        A current reply that may not be interrupted finishes first. key: key of the turn's history entry.
        """
        if self._replying and not self._requested and not self.options.interrupt_response:
            self._history.add_user(text, key)
            self._owed = self.options.create_response
        elif self.options.create_response or self._requested:
            self._answer(text, key)
        else:
            self._history.add_user(text, key)
            self._floor.agent.finished()

    def end_empty_turn(self) -> None:
        """Start the requested or owed reply after a turn without words."""
        if self._requested:
            self._answer(None)
        else:
            self.answer_owed()

    def answer_owed(self) -> None:
        """Answer the words said during the last reply, unless the user is speaking again."""
        if self._owed and not self._replying and self._floor.floor is not Floor.USER:
            self.respond()

    def respond(self, request: ReplyRequest | None = None) -> None:
        """Start the requested reply. If the user is in a turn, the reply waits for the end of the turn."""
        request = request or ReplyRequest()
        if not request.remembered:
            turn = self._turn(None, request, None)
            self._out_of_band.start(turn, self._messages(turn, None, request))
            return
        talking = self._floor.floor is Floor.USER and not self._floor.manual
        ending = self._floor.floor is Floor.PAUSE
        if (talking and self.options.interrupt_response) or ending:
            self._requested = request
            return
        self._cancel(superseded=True)
        self._commit(self._start(None, request))

    def prompt(self, cue: str) -> None:
        """Reply to a cue that replaces the user's words in the prompt; the history does not record it."""
        self._commit(self._start(None, cue=cue))

    @property
    def idle(self) -> bool:
        """Whether there is no reply, requested and owed ones included."""
        return self.turn is None and not self._requested and not self._owed

    def _answer(self, text: str | None, key: Key | None = None) -> None:
        request, self._requested = self._requested or ReplyRequest(), None
        if self.turn and text and request == ReplyRequest(tag=request.tag) and self._guessed(text):
            self.turn.tag = request.tag
            self._commit(self.turn, key)
        else:
            self._cancel(superseded=True)
            self._commit(self._start(text, request), key)

    @property
    def _replying(self) -> bool:
        return self.turn is not None and self.turn.committed

    # --- pauses and interruptions -----------------------------------------------------------------------

    def pause(self) -> None:
        """Pause the reply until it is known whether the sound over it is an interruption."""
        if self.turn is None or self.turn.made:
            self._floor.agent.finishing()
        if self.turn is not None:
            self.turn.pause()

    def resume(self) -> None:
        """Resume the reply at the sample where it paused: the sound was no interruption."""
        if self.turn is not None and not self.held:
            self.turn.resume()
            counts = self.turn.trace.counts
            counts["false_interruptions"] = counts.get("false_interruptions", 0) + 1
            if self.turn.trace.budget():  # otherwise the first audio sends it
                self._emit(TurnTraced(self.turn.trace))

    def yield_to_user(self) -> None:
        """Cancel the reply for the user's speech, if replies may be interrupted."""
        self.speculation.begin_turn()
        if self.options.interrupt_response:
            self._cancel(overtaken=True)

    def interrupt(self, out_of_band: int | None = None) -> None:
        """Stop the current or requested reply, or the out-of-band reply with the given number."""
        if out_of_band is not None:
            self._out_of_band.cancel(out_of_band)
            return
        self._requested, self._owed = None, False
        self._cancel()
        self._floor.agent.finished()

    def truncate(self, turn: int, seconds: float) -> str | None:
        """Settle reply ``turn`` at ``seconds`` played; stop it if it runs. Return the heard text or None."""
        if self.turn and self.turn.id == turn and self.turn.committed:
            self._cancel()  # the client has stopped its playback
            self._floor.agent.finished()
        heard = None
        for settled in self._settled:
            if settled.id == turn:
                heard = settled.heard(seconds)
                self._settle(settled, seconds, cut=True)
        self.answer_owed()
        return heard

    def close(self) -> None:
        """Cancel all replies; ``cancelled`` holds the tasks that have not ended."""
        self._cancel()
        self._out_of_band.close()
        if self._warming is not None and not self._warming.done():
            self._track_cancelled(self._warming)
        for task in self.cancelled:
            task.cancel()

    def hold(self, since: float) -> tuple[int, float] | None:
        """Stop play-out until ``release``: the client has been disconnected since time ``since``.

        Returns the number of the last reply that played and the seconds of it played by then, or None.
        """
        self.held = True
        self._out_of_band.pause()
        if self.turn is not None:
            self.turn.playout.stop(since)
            self.turn.pause()
        last = self.turn if self._replying else next(reversed(self._settled), None)
        return (last.id, last.playout.played(since)) if last else None

    def release(self, unheard: Mapping[int, float]) -> None:
        """Resume play-out; the client plays the last seconds of some replies again, one after the other.

        unheard: these seconds by the number of the reply. A reply that had ended becomes current again: it
        can be interrupted, and the history records the rest once it has played.
        """
        self.held = False
        self._out_of_band.resume()
        now, seconds = asyncio.get_running_loop().time(), 0.0
        ended = [turn for turn in self._settled if turn is not self.turn and turn.id in unheard]
        if self.turn is not None:
            self.turn.resume()
        for turn in [*ended, self.turn] if self.turn else ended:
            turn.playout.sent_again(unheard.get(turn.id, 0.0), now + seconds)
            seconds += unheard.get(turn.id, 0.0)
        if self.echo is not None:
            self.echo.play_again(seconds, now)
        if ended and self.idle and self._floor.floor is Floor.NOBODY:
            for turn in ended:
                self._settle(turn, turn.playout.played(now), cut=True)
            self._floor.agent.started()
            self.turn = ended[-1]
            self.turn.task = asyncio.create_task(self._replay(ended), name=f"reply-{self.turn.id}-again")

    async def _replay(self, turns: Sequence[Turn]) -> None:
        for turn in turns:
            await turn.wait_played()
            self._settle(turn, turn.playout.seconds, cut=turn.failed)
        self._end()

    # --- one reply --------------------------------------------------------------------------------------

    def _guessed(self, text: str) -> bool:
        """Return whether the current reply is a guess for these words."""
        return bool(
            self.turn and not self.turn.committed and normalise(self.turn.text or "") == normalise(text)
        )

    def _start(self, text: str | None, request: ReplyRequest | None = None, cue: str | None = None) -> Turn:
        request = request or ReplyRequest()
        self.turn = turn = self._turn(text, request, self.echo)
        turn.trace.marks.update(self.marks if text else {})
        turn.mark("reply_started")
        # The prompt being read ahead is now as urgent as the reply, which waits for it.
        turn.deadline, self._reading = self._reading, Deadline(PARTIAL_SECONDS)
        turn.deadline.slack = GUESS_SECONDS
        turn.brief = self._models.load_shedder.level >= LoadLevel.LENGTH and not turn.tools.functions
        # Build the prompt before the task starts: a commit right after this adds the text to the history.
        messages = self._messages(turn, text or cue, request)
        turn.task = asyncio.create_task(self._run(turn, messages), name=f"reply-{turn.id}")
        return turn

    def _turn(self, text: str | None, request: ReplyRequest, echo: Echo | None) -> Turn:
        self._turns += 1
        speaks = self.options.speaks if request.speaks is None else request.speaks
        tools = self.options.tools if request.tools is None else request.tools
        most = self.options.max_tokens if request.max_tokens is None else request.max_tokens
        holds, seconds = self.options.holds_audio, self.options.max_reply_s
        turn = Turn(self._turns, text, request.tag, speaks, tools, holds, echo, most, seconds)
        turn.words = request.words
        return turn

    def _messages(self, turn: Turn, text: str | None, request: ReplyRequest) -> list[Message]:
        if request.words:
            return []
        if request.prompt is None:
            try:
                return self._history.messages(text, request.instructions)
            except ProtocolError as error:
                turn.refused = error
                return []
        return prompt(request.prompt, request.instructions or self.options.instructions)

    def _commit(self, turn: Turn, key: Key | None = None) -> None:
        self._owed = False
        turn.trace.counts |= self.speculation.commit(turn.guess)
        turn.trace.counts["ladder"] = float(self._models.load_shedder.level)
        if turn.text:
            self._history.add_user(turn.text, key)
        self._history.begin_reply(turn.id)
        self._floor.agent.started()
        self._emit(ReplyStarted(turn.id, turn.tag, turn.speaks))
        if self.held or self._floor.floor is Floor.OVERLAP:
            turn.pause()
        turn.commit()

    async def _run(self, turn: Turn, messages: list[Message]) -> None:
        """Run a reply to its end. A guess may finish before its commit, and emits no events until then."""
        status = await attempt(turn, self._models, messages, self._out, self._warming)
        if status == "failed" and turn is not self.turn:  # it failed while it was being cancelled
            return
        await turn.wait_committed()
        turn.failed = status == "failed"
        self._settle(turn, turn.playout.seconds, cut=turn.failed)  # before the client can add an entry
        for call in turn.calls if status == "completed" else []:
            self._emit(ReplyCalled(turn.id, self._history.add_call(call)))
        self._emit_done(turn, status, turn.playout.seconds)
        await turn.wait_played()  # sent audio plays, whatever the status
        self._end()

    def _end(self) -> None:
        self.turn = None
        self._floor.agent.finished()
        self.answer_owed()

    def _cancel(self, superseded: bool = False, overtaken: bool = False) -> None:
        """Cancel the current reply and settle the history with the words that were heard.

        superseded: another reply replaces it; one whose audio is all sent then still plays to its end.
        overtaken: the user's speech cancels it.
        """
        turn, self.turn = self.turn, None
        if turn is None or turn.task is None:
            return
        turn.overtaken = overtaken
        turn.cancel()
        if turn.guess and not turn.committed:
            self.speculation.drop(turn.tokens)
        self._track_cancelled(turn.task)
        if turn.committed and superseded and turn.done:
            self._settle(turn, turn.playout.seconds, cut=turn.failed)
        elif turn.committed:
            now = asyncio.get_running_loop().time()
            played = turn.playout.played(now)
            if self.echo is not None:
                self.echo.cut(now)
            self._settle(turn, played, cut=not turn.done or played < turn.playout.seconds)
            self._emit_done(turn, "cancelled", played)

    def _track_cancelled(self, task: asyncio.Task[None]) -> None:
        self.cancelled.add(task)
        task.add_done_callback(self.cancelled.discard)

    def _emit_done(self, turn: Turn, status: str, played: float) -> None:
        if not turn.done:
            turn.done = True
            if seconds := turn.trace.making():
                self._models.load_shedder.answered(id(self), seconds, asyncio.get_running_loop().time())
            self._emit(over(turn, self._models.llm, status, played))

    def _settle(self, turn: Turn, played: float, cut: bool) -> None:
        """Record the heard words in the history; again if a reply is cut after its ReplyDone."""
        heard = turn.heard(played)
        if turn.overtaken and cut and turn.speaks and played < MERGE_SECONDS:
            heard = ""
        self._history.settle(turn.id, heard, cut)
        self._floor.agent.was_heard(heard)
        if turn not in self._settled:
            self._settled.append(turn)

    async def _prefill(self, text: str, deadline: Deadline) -> None:
        current.set(deadline)
        try:
            await self._models.llm.warm(self._history.messages(text))
        except Exception as error:  # only speed is lost: the reply itself reports the error
            log.debug("warming the prompt failed: %s", error)
