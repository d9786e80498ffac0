"""One conversation: it runs the listening stages, and reacts to their events and to the client's commands."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from rejoinder.pipeline.audio.chunk import RATE, AudioChunk
from rejoinder.pipeline.channel import Channel
from rejoinder.pipeline.errors import Overloaded, asking, first_error
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
from rejoinder.pipeline.fitting import check_fits
from rejoinder.pipeline.history import History
from rejoinder.pipeline.listening.hearing import hear
from rejoinder.pipeline.listening.transcriber import TurnTranscriber
from rejoinder.pipeline.options import Models, Options, ReplyRequest
from rejoinder.pipeline.prompt import Entry, Key
from rejoinder.pipeline.replying.replies import Replies
from rejoinder.pipeline.replying.speculation import Speculation
from rejoinder.pipeline.replying.stages import CONTROL_PLACES
from rejoinder.pipeline.replying.turn import Turn
from rejoinder.pipeline.turns.endpointer import Endpointer, Floor
from rejoinder.pipeline.turns.silence import Silence, watch

HEAR_SECONDS = 1.0
"""Most audio that waits for voice activity detection. ``Session.hear`` then blocks its caller."""
HEAR_SLICE = RATE // 50
"""Longest chunk of audio in samples. Longer ones are cut, so that the queue's size bounds its seconds."""
IDLE_SLICE = RATE * 6 // 10
"""Longest chunk in samples while the line is idle: bursts stay whole, which saves processor time."""
TRANSCRIBE_SLICES = 150
"""Most slices that wait for the recogniser: three seconds of speech. Voice activity detection then waits."""

DOUBT_SECONDS = 3.0
"""Longest pause of a reply during an overlap. The floor counts samples, which a client may stop sending."""


class Session:
    """One conversation. Open it with ``open_session``, and read ``events`` until they end.

    events: all events, in order. Keep reading them: audio waits until there is room, and the session ends
        with Overloaded if the channel overflows.
    received: samples of the user's audio taken so far, at 16 kHz.
    """

    def __init__(self, models: Models, options: Options | None = None) -> None:
        self.models = models
        self.options = options or Options()
        self.history = History(
            self.options.instructions, self.options.examples, self.options.prompt_characters
        )
        self.history.retention = self.options.retention
        self.floor = Endpointer(has_turn_model=models.turn is not None)
        self.floor.configure(self.options)
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
        """The current reply, committed or not; None between replies."""
        return self._replies.turn

    @property
    def idle(self) -> bool:
        """Whether the line is idle, so that audio may be read in bursts.

        It is idle if no side speaks, no sound may become a turn, no reply is pending and no client request is
        expected. A client requests a reply where ``create_response`` is off, or after a tool call.
        """
        waits = self.options.create_response and not self.history.pending
        return self.floor.idle and self._replies.idle and waits

    @property
    def at_rest(self) -> bool:
        """Whether neither side has the floor, and no reply is pending."""
        return self.floor.floor is Floor.NOBODY and self._replies.idle

    @property
    def speculation(self) -> Speculation:
        """Counts of the replies that started before the end of their turn: kept, dropped, tokens wasted."""
        return self._replies.speculation

    # --- what the client says ---------------------------------------------------------------------------

    async def hear(self, pcm: bytes) -> None:
        """Take the user's next audio: little-endian 16-bit mono PCM at 16 kHz.

        It waits while one second of audio is unprocessed. Cancelling drops the part that was not taken yet;
        the next audio follows the part that was.
        """
        chunk = AudioChunk(pcm, RATE, self.received)
        self._arrivals.append((chunk.end, self._now()))
        whole = self.floor.idle and not len(self._heard) and 0 < len(chunk) <= IDLE_SLICE
        for piece in [chunk] if whole else chunk.slices(HEAR_SLICE):
            await self._heard.send(piece)
            self.received = piece.end

    async def end_user_turn(self) -> None:
        """End the user's turn at the last sample received.

        An EndOfTurn event with the transcript follows, or NothingSaid if there is no turn. Cancelling while
        it waits for room does not undo the end of the turn.
        """
        ended = self.floor.end_turn(self.received)
        if not ended and self.floor.pause is None:
            ended = [NothingSaid(self.received)]
        for event in ended:
            self._react(event)
        await self._heard.send(AudioChunk(b"", RATE, self.received))  # an empty chunk wakes the stages

    def clear_audio(self) -> None:
        """Drop the user's unfinished turn."""
        self._replies.drop_guess()
        for event in self.floor.abandon_turn(self.received):
            self._react(event)
        self._replies.end_empty_turn()

    def add_text(self, text: str, role: str = "user") -> None:
        """Append typed words to the history; ``role`` is user, assistant or system."""
        self._silence.user_spoke()
        self._replies.drop_guess()  # its prompt lacks these words
        self.history.add(role, text)

    def insert(self, entry: Entry, after: Key | None) -> None:
        """Insert an entry into the history; see ``History.insert``."""
        self._silence.user_spoke()
        self._replies.drop_guess()
        self.history.insert(entry, after)

    async def insert_audio(self, pcm: bytes, key: Key, after: Key | None) -> str:
        """Transcribe a recording of the user, insert its words into the history, and return them.

        pcm: little-endian 16-bit mono PCM at 16 kHz. Raises ModelError. The history stays unchanged if the
        call fails or is cancelled.
        """
        stream = self.models.stt.stream()
        for second in AudioChunk(pcm, RATE).slices(RATE):
            for piece in second.slices(HEAR_SLICE):
                stream.feed(piece)
            await asyncio.sleep(0)  # other calls run in between
        with asking("speech recogniser"):
            text = (await stream.transcribe(is_final=True)).text
        self.insert(Entry("user", text, key), after)
        return text

    def remove(self, key: Key) -> None:
        """Remove an entry from the history."""
        self._replies.drop_guess()
        self.history.remove(key)

    def respond(self, request: ReplyRequest | None = None) -> None:
        """Start a reply to the history; it replaces the current reply.

        If the user is in a turn, the reply waits for its end and answers it. request: settings of this reply.
        Raises Overloaded if too many out-of-band replies run already.
        """
        self._replies.respond(request)

    def interrupt(self, out_of_band: int | None = None) -> None:
        """Stop the current or requested reply; the history keeps the words that were heard.

        out_of_band: number of an out-of-band reply to stop instead.
        """
        self._replies.interrupt(out_of_band)

    def truncate(self, turn: int, seconds: float) -> str | None:
        """Record that the client played only ``seconds`` of reply ``turn``; return the words in them.

        It stops a reply that is still speaking. It returns None for an unknown or old reply.
        """
        return self._replies.truncate(turn, seconds)

    def configure(self, options: Options) -> None:
        """Replace the options, from the next turn on."""
        self.options = self._replies.options = options
        self.history.instructions = options.instructions
        self.history.examples = list(options.examples)
        self.history.retention = options.retention
        for event in self.floor.configure(options):
            self._react(event)
        self._configured.set()

    def hold(self, since: float) -> tuple[int, float] | None:
        """Stop play-out until ``release``: the client has disconnected and may return.

        since: loop time at which the client was last connected. Returns the number of the last reply that
        played and the seconds of it played by then; None if no reply has played.
        """
        self._dismiss()
        self._settle_doubt()
        return self._replies.hold(since)

    def release(self, unheard: Mapping[int, float] | None = None) -> None:
        """Resume after ``hold``.

        unheard: seconds at the end of each reply, by its number, that the client receives again, in order.
        They count as heard once they have played, and can be interrupted until then.
        """
        self._replies.release(unheard or {})

    @property
    def user_has_floor(self) -> bool:
        """Whether the user is in a turn whose end the session decides, not the client."""
        return self.floor.floor in (Floor.USER, Floor.PAUSE) and not self.floor.manual

    # --- what the session does --------------------------------------------------------------------------

    async def listen(self) -> None:
        """Say the greeting, and run the listening stages until they fail or are cancelled.

        Raises the error of a listening model, CallOver at the longest duration of a call, and Overloaded if
        ``events`` overflow. Cancelling ends the stages; ``aclose`` does the rest.
        """
        self.models.load_shedder.joined(id(self._replies), self._now())
        audio: Channel[AudioChunk] = Channel(TRANSCRIBE_SLICES, "transcribe")
        transcriber = TurnTranscriber(self.models, self.floor, self._react)
        if self.options.greeting.strip():
            self.respond(ReplyRequest(words=self.options.greeting))
        async with asyncio.TaskGroup() as tasks:
            vad = self.models.vad.stream()
            check_fits("vad stream", vad)
            tasks.create_task(hear(self._heard, vad, self.floor, self._react, audio, self._replies.echo))
            tasks.create_task(transcriber.transcribe(audio))
            quiet = watch(self._silence, lambda: self.options, self._is_quiet, self._prompt, self._configured)
            tasks.create_task(quiet)
            await self._overflown.wait()
            raise Overloaded("the session's events are not read: keep receiving them")

    async def aclose(self) -> None:
        """Cancel the replies, wait until their tasks have ended, and close ``events``.

        Cancelling stops the wait; the replies are cancelled in any case, and ``events`` may stay open.
        """
        self._settle_doubt()
        self._replies.close()
        self.models.load_shedder.left(id(self._replies))
        if self._cancelled:
            await asyncio.wait(self._cancelled)
        self.events.close()

    def _react(self, event: FloorEvent | PartialTranscript) -> None:
        match event:
            case SpeechStarted():
                self._emit(event)  # before the ReplyDone of the reply that it interrupts
                self._settle_doubt()
                self._replies.yield_to_user()
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
        return self.at_rest and not self._replies.held

    def _prompt(self, seconds: float) -> None:
        self._emit(NobodySpoke(max(0, self.received - int(seconds * RATE)), self.received))
        self._replies.prompt(self.options.idle_cue)

    def _dismiss(self) -> None:
        for event in self.floor.dismiss_overlap():
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
    """Open a conversation for the duration of an ``async with`` block.

    If a listening model fails, the block is cancelled and the error is raised from it. At the end of the
    block, or when it is cancelled, the replies and all that they started are cancelled and awaited.
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
        await session.aclose()  # only after listening ended, which could start another reply
