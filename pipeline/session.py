"""One conversation: the stages that listen, and what follows from what they hear and the client says."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from rejoinder.pipeline.audio import RATE, AudioChunk
from rejoinder.pipeline.channel import Channel
from rejoinder.pipeline.endpointer import Endpointer, Floor
from rejoinder.pipeline.errors import Overloaded, first_error
from rejoinder.pipeline.events import (
    EagerEndOfTurn,
    EndOfTurn,
    Event,
    FloorEvent,
    NobodySpoke,
    NothingSaid,
    OverlapEnded,
    OverlapStarted,
    PartialTranscript,
    PauseStarted,
    SpeechStarted,
    Transcribed,
    TurnResumed,
)
from rejoinder.pipeline.history import History
from rejoinder.pipeline.listen import Ears, hear
from rejoinder.pipeline.options import Asked, Models, Options
from rejoinder.pipeline.prompt import Entry, Key
from rejoinder.pipeline.replies import Replies
from rejoinder.pipeline.reply import CONTROL_PLACES
from rejoinder.pipeline.silence import Silence, watch
from rejoinder.pipeline.speculation import Speculation
from rejoinder.pipeline.turn import Turn

HEAR_SECONDS = 1.0
"""Audio that may wait to be heard; more than that stops the reading of the socket."""
HEAR_SLICE = RATE // 50
"""Longer chunks are cut up, so that a count of chunks bounds the seconds that wait."""
STILL_SLICE = RATE * 6 // 10
"""While nobody speaks nothing is waited for, and what came together stays together up to this length."""
TRANSCRIBE_SLICES = 150
"""Slices that may wait for the recogniser, three seconds of speech: VAD waits for none that keeps up."""

DOUBT_SECONDS = 3.0
"""So long a reply is paused at most: the floor counts samples, and a client may stop sending them."""


class Session:
    """One conversation. Make it with ``open_session``; read ``events`` until it closes.

    events: what happens, in order. Whoever embeds the session must keep reading: audio waits for room, and a
        session whose events are not read at all ends with Overloaded.
    """

    def __init__(self, models: Models, options: Options | None = None) -> None:
        self.models = models
        self.options = options or Options()
        self.history = History(
            self.options.instructions, self.options.examples, self.options.prompt_characters
        )
        self.history.retention = self.options.retention
        self.floor = Endpointer(self.options.endpointing)
        self.floor.manual = not self.options.detect_turns
        self.floor.yields = self.options.interrupt_response
        self.events: Channel[Event] = Channel(2 * CONTROL_PLACES, "events")
        self.received = 0
        self._replies = Replies(models, self.options, self.history, self.floor, self.events, self._emit)
        self._cancelled = self._replies.cancelled
        self._heard: Channel[AudioChunk] = Channel(int(HEAR_SECONDS * RATE / HEAR_SLICE), "heard")
        self._arrivals: deque[tuple[int, float]] = deque(maxlen=512)
        self._doubting: asyncio.TimerHandle | None = None
        self._overflown = asyncio.Event()
        self._configured = asyncio.Event()
        self._silence = Silence()

    @property
    def turn(self) -> Turn | None:
        """The reply that runs, or waits for its commit; None between replies."""
        return self._replies.turn

    @property
    def still(self) -> bool:
        """Whether nobody speaks, nothing heard may become a turn, and the client is to ask for no answer.

        It is to ask for one where answers are not given by themselves, or a tool has been called.
        """
        waits = self.options.create_response and not self.history.pending
        return self.floor.still and self._replies.idle and waits

    @property
    def speculation(self) -> Speculation:
        """What became of the answers that were started before a turn was surely over."""
        return self._replies.speculation

    # --- what the client says ---------------------------------------------------------------------------

    async def hear(self, pcm: bytes) -> None:
        """Take the next audio of the user, 16 kHz mono 16-bit. Waits while a second of it is unheard.

        Cancelling drops what was not taken yet; what is heard next follows what was taken.
        """
        chunk = AudioChunk(pcm, RATE, self.received)
        self._arrivals.append((chunk.end, self._now()))
        whole = self.floor.still and not len(self._heard) and 0 < len(chunk) <= STILL_SLICE
        for piece in [chunk] if whole else chunk.slices(HEAR_SLICE):
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
        self._replies.drop_guess()
        for event in self.floor.abandon(self.received):
            self._react(event)
        self._replies.end_empty_turn()

    def add_text(self, text: str, role: str = "user") -> None:
        """Add words that were typed instead of spoken; ``role`` is user, assistant or system."""
        self._silence.user_spoke()
        self._replies.drop_guess()  # it answers a history without them
        self.history.add(role, text)

    def insert(self, entry: Entry, after: Key | None) -> None:
        """Put anything into the history, behind an entry or at its beginning; see ``History.insert``."""
        self._silence.user_spoke()
        self._replies.drop_guess()
        self.history.insert(entry, after)

    async def insert_audio(self, pcm: bytes, key: Key, after: Key | None) -> str:
        """Put a recording of the user into the history, 16 kHz mono 16-bit; return its words.

        Raises ModelError. Cancelling, or a model that fails, leaves the history as it was.
        """
        stream = self.models.stt.stream()
        for second in AudioChunk(pcm, RATE).slices(RATE):
            for piece in second.slices(HEAR_SLICE):
                stream.feed(piece)
            await asyncio.sleep(0)
        text = (await stream.transcribe(is_final=True)).text
        self.insert(Entry("user", text, key), after)
        return text

    def remove(self, key: Key) -> None:
        """Forget an entry of the history as if it had never been said."""
        self._replies.drop_guess()
        self.history.remove(key)

    def respond(self, asked: Asked | None = None) -> None:
        """Reply to the history as it stands, replacing a reply that runs.

        The user's turn, where there is one, is waited for and answered. asked: what is to be different.
        Raises Overloaded where too many replies beside the conversation are asked for.
        """
        self._replies.respond(asked)

    def interrupt(self, aside: int | None = None) -> None:
        """Stop the reply, or the one that was asked for; the history keeps what was heard of it.

        aside: stop that reply beside the conversation instead.
        """
        self._replies.interrupt(aside)

    def truncate(self, turn: int, seconds: float) -> str | None:
        """Take the client's word that only ``seconds`` of a reply were played; return what was heard of it.

        A reply that still speaks ends here. Returns None for one that is unknown or forgotten.
        """
        return self._replies.truncate(turn, seconds)

    def configure(self, options: Options) -> None:
        """Change the options from the next turn on."""
        self.options = self._replies.options = options
        self.history.instructions = options.instructions
        self.history.examples = list(options.examples)
        self.history.retention = options.retention
        self.floor.options = options.endpointing
        self.floor.manual = not options.detect_turns
        self.floor.yields = options.interrupt_response
        if self.floor.manual or not self.floor.yields:
            self._dismiss()
        self._configured.set()

    def hold(self, since: float) -> tuple[int, float] | None:
        """Let nothing be heard until ``release``: the client is gone, and may come back.

        since: the loop time at which it was there last. Returns the reply that sounded last, and how many
        seconds of it had been heard by then.
        """
        self._dismiss()
        self._settle_doubt()
        return self._replies.hold(since)

    def release(self, unheard: Mapping[int, float] | None = None) -> None:
        """Go on after ``hold``.

        unheard: of which replies the client is sent how many of the last seconds once more, in order. They
        count as heard when they have sounded, and may be interrupted until then.
        """
        self._replies.release(unheard or {})

    @property
    def user_has_floor(self) -> bool:
        """Whether the user is in a turn that the session, and not the client, ends."""
        return self.floor.floor in (Floor.USER, Floor.PAUSE) and not self.floor.manual

    # --- what the session does --------------------------------------------------------------------------

    async def listen(self) -> None:
        """Run the listening stages until the session closes.

        Raises what a listening model raises, and CallOver.
        """
        self.models.ladder.joined(id(self._replies), self._now())
        audio: Channel[AudioChunk] = Channel(TRANSCRIBE_SLICES, "transcribe")
        ears = Ears(self.models, self.floor, self._react)
        async with asyncio.TaskGroup() as tasks:
            vad = self.models.vad.stream()
            tasks.create_task(hear(self._heard, vad, self.floor, self._react, audio, self._replies.echo))
            tasks.create_task(ears.transcribe(audio))
            quiet = watch(self._silence, lambda: self.options, self._is_quiet, self._prompt, self._configured)
            tasks.create_task(quiet)
            await self._overflown.wait()
            raise Overloaded("nobody reads this session's events")

    async def aclose(self) -> None:
        """Cancel the reply, wait until all it started is gone, and end ``events``."""
        self._settle_doubt()
        self._replies.close()
        self.models.ladder.left(id(self._replies))
        if self._cancelled:
            await asyncio.wait(self._cancelled)
        self.events.close()

    def _react(self, event: FloorEvent | PartialTranscript) -> None:
        match event:
            case SpeechStarted():
                self._emit(event)  # before the end of what it interrupts
                self._settle_doubt()
                self._replies.overtake()
                self._replies.marks = {}
                return
            case OverlapStarted():
                self._replies.pause()
                self._doubting = asyncio.get_running_loop().call_later(DOUBT_SECONDS, self._dismiss)
            case OverlapEnded():
                self._emit(event)
                self._settle_doubt()
                self._replies.resume()
                return
            case PauseStarted(at):
                self._replies.marks = {"speech_ended": self._arrival(at), "pause_seen": self._now()}
            case PartialTranscript(text):
                self._replies.warm(text)
            case Transcribed():
                self._replies.marks["transcribed"] = self._now()
            case EagerEndOfTurn(text):
                self._replies.guess(text)
            case TurnResumed():
                self._replies.drop_guess()
            case NothingSaid():
                self._replies.drop_guess()
                self._emit(event)
                self._replies.end_empty_turn()
                return
            case EndOfTurn(text, at):
                self._silence.user_spoke()
                self._emit(event)
                self._replies.end_turn(text, ("user", at))
                return
        self._emit(event)

    def _is_quiet(self) -> bool:
        return self.floor.floor is Floor.NOBODY and self._replies.idle and not self._replies.held

    def _prompt(self, seconds: float) -> None:
        self._emit(NobodySpoke(max(0, self.received - int(seconds * RATE)), self.received))
        self._replies.prompt(self.options.idle_cue)

    def _dismiss(self) -> None:
        for event in self.floor.dismiss():
            self._react(event)

    def _settle_doubt(self) -> None:
        if self._doubting is not None:
            self._doubting.cancel()

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
