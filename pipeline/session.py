"""One conversation: history, the current turn, and the stages that listen."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from rejoinder.pipeline.agreement import bare
from rejoinder.pipeline.audio import RATE, AudioChunk
from rejoinder.pipeline.channel import Channel
from rejoinder.pipeline.endpointer import Endpointer, Floor
from rejoinder.pipeline.errors import Overloaded, PipelineError, first_error
from rejoinder.pipeline.events import (
    EagerEndOfTurn,
    EndOfTurn,
    Event,
    FloorEvent,
    NothingSaid,
    OverlapEnded,
    OverlapStarted,
    PartialTranscript,
    PauseStarted,
    ReplyDone,
    ReplyStarted,
    SpeechStarted,
    TurnResumed,
    TurnTraced,
)
from rejoinder.pipeline.history import History
from rejoinder.pipeline.interfaces import Message
from rejoinder.pipeline.listen import Ears, hear
from rejoinder.pipeline.options import Models, Options
from rejoinder.pipeline.reply import CONTROL_PLACES, reply
from rejoinder.pipeline.turn import Turn

log = logging.getLogger(__name__)

HEAR_SECONDS = 1.0
"""Audio that may wait to be heard; more than that stops the reading of the socket."""
HEAR_SLICE = RATE // 50
"""Longer chunks are cut up, so that a count of chunks bounds the seconds that wait."""
TRANSCRIBE_SLICES = 150
"""Slices that may wait for the recogniser: three seconds, so that no recogniser that keeps up delays VAD."""

DOUBT_SECONDS = 3.0
"""So long a reply is paused at most: the floor counts samples, and a client may stop sending them."""
MERGE_SECONDS = 0.3
"""A reply of which less was heard leaves no trace: the user had not finished, and both parts are one turn."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A reply that the client asked for while the user's turn was still being ended."""

    instructions: str | None


class Session:
    """One conversation. Make it with ``open_session``; read ``events`` until it closes.

    events: what happens, in order. Whoever embeds the session must keep reading: audio waits for room, and a
        session whose events are not read at all ends with Overloaded.
    """

    def __init__(self, models: Models, options: Options | None = None) -> None:
        self.models = models
        self.options = options or Options()
        self.history = History(self.options.instructions, self.options.examples)
        self.floor = Endpointer(self.options.endpointing)
        self.floor.manual = not self.options.detect_turns
        self.floor.yields = self.options.interrupt_response
        self.events: Channel[Event] = Channel(2 * CONTROL_PLACES, "events")
        self.turn: Turn | None = None
        self.received = 0
        self._heard: Channel[AudioChunk] = Channel(int(HEAR_SECONDS * RATE / HEAR_SLICE), "heard")
        self._turns = 0
        self._cancelled: set[asyncio.Task[None]] = set()
        self._settled: deque[Turn] = deque(maxlen=8)
        self._warming: asyncio.Task[None] | None = None
        self._arrivals: deque[tuple[int, float]] = deque(maxlen=512)
        self._marks: dict[str, float] = {}
        self._asked: Asked | None = None
        self._owed = False
        self._doubting: asyncio.TimerHandle | None = None
        self._overflown = asyncio.Event()

    # --- what the client says ---------------------------------------------------------------------------

    async def hear(self, pcm: bytes) -> None:
        """Take the next audio of the user, 16 kHz mono 16-bit. Waits while a second of it is unheard.

        Cancelling drops what was not taken yet; what is heard next follows what was taken.
        """
        chunk = AudioChunk(pcm, RATE, self.received)
        self._arrivals.append((chunk.end, self._now()))
        for piece in chunk.slices(HEAR_SLICE):
            await self._heard.send(piece)
            self.received = piece.end

    async def end_user_turn(self) -> None:
        """End the user's turn here, whatever the silence.

        Its transcript follows as an EndOfTurn event, or NothingSaid where there was no turn to end.
        """
        ended = self.floor.end_turn(self.received)
        if not ended and self.floor.pause is None:
            ended = [NothingSaid(self.received)]
        for event in ended:
            self._react(event)
        await self._heard.send(AudioChunk(b"", RATE, self.received))  # an empty chunk wakes the stages up

    def clear_audio(self) -> None:
        """Forget what the user said in the turn that has not ended yet."""
        self._drop_guess()
        for event in self.floor.abandon(self.received):
            self._react(event)
        if self._asked:
            self._answer(None)
        else:
            self._answer_owed()

    def add_text(self, text: str, role: str = "user") -> None:
        """Add words that were typed instead of spoken; ``role`` is user, assistant or system."""
        self._drop_guess()  # it answers a history without them
        self.history.add(role, text)

    def respond(self, instructions: str | None = None) -> None:
        """Reply to the history as it stands, replacing a reply that runs.

        A user's turn that is being ended is waited for and answered. instructions: replace the session's for
        this one reply.
        """
        if self.floor.pause is not None and self.floor.floor is not Floor.OVERLAP:
            self._asked = Asked(instructions)
            return
        self._cancel(superseded=True)
        self._commit(self._start(None, instructions))

    def interrupt(self) -> None:
        """Stop the reply, or the one that was asked for; the history keeps what was heard of it."""
        self._asked, self._owed = None, False
        self._cancel()
        self.floor.agent_done()

    def truncate(self, turn: int, seconds: float) -> str | None:
        """Take the client's word that only ``seconds`` of a reply were played; return what was heard of it.

        Returns None for a reply that is unknown, forgotten, or not over.
        """
        if self.turn and self.turn.id == turn and self.turn.done:
            self._cancel()  # all of it was sent, and the last bit would have been heard by and by
            self.floor.agent_done()
        heard = None
        for settled in self._settled:
            if settled.id == turn:
                heard = settled.playout.text(seconds)
                self._settle(settled, seconds, cut=True)
        self._answer_owed()
        return heard

    def configure(self, options: Options) -> None:
        """Change the options from the next turn on."""
        self.options = options
        self.history.instructions = options.instructions
        self.history.examples = list(options.examples)
        self.floor.options = options.endpointing
        self.floor.manual = not options.detect_turns
        self.floor.yields = options.interrupt_response
        if self.floor.manual or not self.floor.yields:
            self._dismiss()

    # --- what the session does --------------------------------------------------------------------------

    async def listen(self) -> None:
        """Run the listening stages until the session closes. Raises what a listening model raises."""
        audio: Channel[AudioChunk] = Channel(TRANSCRIBE_SLICES, "transcribe")
        ears = Ears(self.models.stt, self.models.turn, self.floor, self._react)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(hear(self._heard, self.models.vad.stream(), self.floor, self._react, audio))
            tasks.create_task(ears.transcribe(audio))
            await self._overflown.wait()
            raise Overloaded("nobody reads this session's events")

    async def aclose(self) -> None:
        """Cancel the reply, wait until all it started is gone, and end ``events``."""
        self._settle_doubt()
        self._cancel()
        pending = [*self._cancelled, *([self._warming] if self._warming else [])]
        for task in pending:
            task.cancel()
        if pending:
            await asyncio.wait(pending)
        self.events.close()

    def _react(self, event: FloorEvent | PartialTranscript) -> None:
        match event:
            case SpeechStarted():
                self._emit(event)  # before the end of what it interrupts
                self._settle_doubt()
                if self.options.interrupt_response:
                    self._cancel(overtaken=True)
                self._marks = {}
                return
            case OverlapStarted():
                self._pause()
            case OverlapEnded():
                self._emit(event)
                self._go_on()
                return
            case PauseStarted(at):
                self._marks = {"speech_ended": self._arrival(at), "pause_seen": self._now()}
            case PartialTranscript(text):
                self._warm(text)
            case EagerEndOfTurn(text):
                self._marks["transcribed"] = self._now()
                if self.options.speculate and self.options.create_response and not self._replying:
                    self._guess(text)
            case TurnResumed():
                self._drop_guess()
            case NothingSaid():
                self._drop_guess()
                self._emit(event)
                if self._asked:
                    self._answer(None)
                else:
                    self._answer_owed()
                return
            case EndOfTurn(text):
                self._emit(event)
                self._end_turn(text)
                return
        self._emit(event)

    def _pause(self) -> None:
        if self.turn is None or self.turn.made:
            self.floor.agent_ends()
        if self.turn is not None:
            self.turn.pause()
        self._doubting = asyncio.get_running_loop().call_later(DOUBT_SECONDS, self._dismiss)

    def _go_on(self) -> None:
        self._settle_doubt()
        if self.turn is not None:
            self.turn.resume()
            counts = self.turn.trace.counts
            counts["false_interruptions"] = counts.get("false_interruptions", 0) + 1
            if self.turn.trace.budget():  # or it will be told with its first audio
                self._emit(TurnTraced(self.turn.trace))

    def _dismiss(self) -> None:
        for event in self.floor.dismiss():
            self._react(event)

    def _settle_doubt(self) -> None:
        if self._doubting is not None:
            self._doubting.cancel()

    def _end_turn(self, text: str) -> None:
        if self._replying and not self._asked and not self.options.interrupt_response:
            self.history.add_user(text)
            self._owed = self.options.create_response
        elif self.options.create_response or self._asked:
            self._answer(text)
        else:
            self.history.add_user(text)
            self.floor.agent_done()

    def _answer(self, text: str | None) -> None:
        asked, self._asked = self._asked, None
        if text and not (asked and asked.instructions):
            self._commit(self._guess(text))
        else:
            self._cancel(superseded=True)
            self._commit(self._start(text, asked.instructions if asked else None))

    @property
    def _replying(self) -> bool:
        return self.turn is not None and self.turn.committed

    def _drop_guess(self) -> None:
        if self.turn and not self.turn.committed:
            self._cancel()

    def _guess(self, text: str) -> Turn:
        if self.turn and not self.turn.committed and bare(self.turn.text or "") == bare(text):
            return self.turn
        self._cancel(superseded=True)
        return self._start(text)

    def _answer_owed(self) -> None:
        """Answer what was said during a reply; who speaks again at this moment is answered afterwards."""
        if self._owed and not self._replying and self.floor.floor is not Floor.USER:
            self.respond()

    def _start(self, text: str | None, instructions: str | None = None) -> Turn:
        self._turns += 1
        self.turn = turn = Turn(self._turns, text, instructions, self.options.holds_audio)
        turn.trace.marks.update(self._marks if text else {})
        turn.mark("reply_started")
        # The prompt is built here, not in the task: a commit in this same step adds the text to the history.
        messages = self.history.messages(text, instructions)
        turn.task = asyncio.create_task(self._run(turn, messages), name=f"reply-{turn.id}")
        return turn

    def _commit(self, turn: Turn) -> Turn:
        self._owed = False
        if turn.text:
            self.history.add_user(turn.text)
        self.history.begin_reply(turn.id)
        self.floor.agent_speaks()
        self._emit(ReplyStarted(turn.id))
        if self.floor.floor is Floor.OVERLAP:
            turn.pause()
        turn.commit()
        return turn

    async def _run(self, turn: Turn, messages: list[Message]) -> None:
        """Run a reply to its end: the turn boundary, where failures of models stop."""
        status, cause = "completed", ""
        try:
            if self._warming:
                await asyncio.wait([self._warming])  # it fills the cache that the reply starts from
            await reply(turn, self.models.llm, self.models.tts, messages, self.events)
        except Exception as error:
            status, first = "failed", first_error(error)
            cause = str(first) or type(first).__name__
            expected = isinstance(first, PipelineError)  # it says all there is to know
            log.warning("turn %d failed: %s", turn.id, cause, exc_info=None if expected else error)
            if turn is not self.turn:  # it failed while being cancelled, which hides the cancel
                return
        await turn.wait_committed()  # nothing of a guess is told, and it may be over before its commit
        self._settle(turn, turn.playout.seconds, cut=status == "failed")  # before a client can add to it
        self._tell_done(turn, status, turn.playout.seconds, cause)
        await turn.sound_out()  # what was sent is heard, whatever the status
        self.turn = None
        self.floor.agent_done()
        self._answer_owed()

    def _cancel(self, superseded: bool = False, overtaken: bool = False) -> None:
        """Drop the current turn; synchronous, so that the next prompt is built from a settled history.

        superseded: another reply takes its place, which cuts nothing off one that only has to sound out.
        overtaken: the user speaks.
        """
        turn, self.turn = self.turn, None
        if turn is None or turn.task is None:
            return
        turn.overtaken = overtaken
        turn.cancel()
        self._cancelled.add(turn.task)
        turn.task.add_done_callback(self._cancelled.discard)
        if turn.committed and not (superseded and turn.done):
            played = turn.playout.played(self._now())
            self._settle(turn, played, cut=not turn.done or played < turn.playout.seconds)
            self._tell_done(turn, "cancelled", played)

    def _tell_done(self, turn: Turn, status: str, played: float, error: str = "") -> None:
        if not turn.done:
            turn.done = True
            self._emit(ReplyDone(turn.id, status, turn.playout.text(played), error))

    def _settle(self, turn: Turn, played: float, cut: bool) -> None:
        """Put what was heard into the history, again for a reply that is cut after it was told as done."""
        heard = turn.playout.text(played)
        if turn.overtaken and cut and played < MERGE_SECONDS:
            heard = ""
        self.history.settle(turn.id, heard, cut)
        self.floor.asked = heard or self.floor.asked
        if turn not in self._settled:
            self._settled.append(turn)

    def _warm(self, text: str) -> None:
        if self._warming is None or self._warming.done():
            if self.options.create_response:
                self._warming = asyncio.create_task(self._prefill(text), name="warm")

    async def _prefill(self, text: str) -> None:
        try:
            await self.models.llm.warm(self.history.messages(text))
        except Exception as error:  # only speed is lost: the reply itself will say what is wrong
            log.debug("warming the prompt failed: %s", error)

    def _emit(self, event: Event) -> None:
        if not self.events.closed and not self.events.send_nowait(event):
            self._overflown.set()

    def _arrival(self, sample: int) -> float:
        """Return the loop time at which a sample arrived."""
        for end, at in self._arrivals:
            if end >= sample:
                return at
        return self._now()

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


@asynccontextmanager
async def open_session(models: Models, options: Options | None = None) -> AsyncIterator[Session]:
    """Open a conversation for the length of an ``async with`` block.

    A listening model that fails cancels the block, and its error is raised from it. On the way out the reply
    and everything it started are cancelled and awaited.
    """
    session = Session(models, options)
    try:
        async with asyncio.TaskGroup() as tasks:
            listening = tasks.create_task(session.listen(), name="listen")
            try:
                yield session
            finally:
                listening.cancel()
    except BaseExceptionGroup as group:
        raise first_error(group) from group
    finally:
        await session.aclose()  # only now, when nothing listens that could start another reply
