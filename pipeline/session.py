"""One conversation: it runs the listening stages, and reacts to their events and to the client's commands."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager
from typing import Any

from rejoinder.pipeline.audio.chunk import RATE, AudioChunk
from rejoinder.pipeline.audio.played import Listeners
from rejoinder.pipeline.call_timer import CallTimer, watch
from rejoinder.pipeline.channel import Channel
from rejoinder.pipeline.errors import Overloaded, first_error
from rejoinder.pipeline.events import (
    BackchannelEnded,
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
    ReplyDone,
    SpeechStarted,
    Transcribed,
    TurnResumed,
)
from rejoinder.pipeline.fitting import check_fits
from rejoinder.pipeline.history import History
from rejoinder.pipeline.listening.hearing import hear
from rejoinder.pipeline.listening.recording import transcribe_recording
from rejoinder.pipeline.listening.transcriber import TurnTranscriber
from rejoinder.pipeline.listening.user_audio import UserAudio
from rejoinder.pipeline.options import Models, Options, ReplyRequest
from rejoinder.pipeline.overlap_timer import OverlapTimer
from rejoinder.pipeline.prompt import Entry, Key
from rejoinder.pipeline.replying.next.position import ReplyPosition
from rejoinder.pipeline.replying.replies import Replies
from rejoinder.pipeline.replying.reply import Reply
from rejoinder.pipeline.replying.speculation import Speculation
from rejoinder.pipeline.replying.stages import CONTROL_PLACES
from rejoinder.pipeline.turns.endpointer import Endpointer
from rejoinder.pipeline.turns.floor import Floor

log = logging.getLogger(__name__)

TRANSCRIBE_SLICES = 150
"""Most slices that wait for the recogniser: three seconds of speech. Voice activity detection then waits."""


class Session:
    """One conversation. Open it with ``open_session``, and read ``events`` until they end.

    events: all events, in order. Keep reading them: audio waits until there is room, and the session ends
        with Overloaded if the channel overflows.
    """

    def __init__(self, models: Models, options: Options | None = None) -> None:
        self.models = models
        self.options = options or Options()
        self.history = History.of(self.options, models.llm)
        self.floor = Endpointer(has_turn_model=models.turn is not None)
        self.floor.configure(self.options)
        self.events: Channel[Event] = Channel(2 * CONTROL_PLACES, "events")
        self._replies = Replies(models, self.options, self.history, self.floor, self.events, self._emit)
        self._user_audio = UserAudio()
        self._overlap_timer = OverlapTimer(self._end_overlap)
        self._overflown = asyncio.Event()
        self._configured = asyncio.Event()
        self._timer = CallTimer()

    @property
    def received(self) -> int:
        """Samples of the user's audio taken so far, at 16 kHz."""
        return self._user_audio.received

    @property
    def reply(self) -> Reply | None:
        """The current reply, committed or not; None between replies."""
        return self._replies.current.reply

    @property
    def listeners(self) -> Listeners:
        """What receives the agent's audio with the times at which it plays."""
        return self._replies.listeners

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
    def owes(self) -> bool:
        """Whether the user waits for the session: for the words of a pause, or for a reply in turn."""
        return self.floor.is_unheard if self.floor.floor is Floor.PAUSE else self._replies.due

    @property
    def written(self) -> int:
        """The tokens of the current reply so far, thoughts included; 0 between replies."""
        return self.reply.generation.tokens if self.reply else 0

    @property
    def floor_is_free(self) -> bool:
        """Whether the agent may say something: neither side speaks, apart from audio that is sent already."""
        return self.floor.floor in (Floor.NOBODY, Floor.AGENT) and self._replies.may_begin

    @property
    def may_fill(self) -> bool:
        """Whether the current reply may speak a filler: none of its words are there yet."""
        return self._replies.may_fill

    @property
    def speculation(self) -> Speculation:
        """Counts of the replies that started before the end of their turn: kept, dropped, tokens wasted."""
        return self._replies.current.speculation

    # --- what the client says ---------------------------------------------------------------------------

    async def hear(self, pcm: bytes) -> None:
        """Take the user's next audio: little-endian 16-bit mono PCM at 16 kHz.

        It waits while one second of audio is unprocessed. Cancelling drops the part that was not taken yet;
        the next audio follows the part that was.
        """
        await self._user_audio.hear(pcm, self.floor.idle)

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
        await self._user_audio.wake()

    def clear_audio(self) -> None:
        """Drop the user's unfinished turn."""
        self._replies.drop_guess()
        for event in self.floor.abandon_turn(self.received):
            self._react(event)
        self._replies.end_empty_turn(dropped=True)

    def add_text(self, text: str, role: str = "user") -> None:
        """Append typed words to the history; ``role`` is user, assistant or system."""
        self._timer.user_spoke()
        self._replies.take_text()
        self.history.add(role, text)

    def insert(self, entry: Entry, after: Key | None) -> None:
        """Insert an entry into the history; see ``History.insert``."""
        self._timer.user_spoke()
        self._replies.take_text()
        self.history.insert(entry, after)

    def position(self) -> ReplyPosition | None:
        """Return how far the newest reply has been heard; None before the first one."""
        return self._replies.position(self._now())

    async def insert_audio(self, pcm: bytes, key: Key, after: Key | None) -> str:
        """Transcribe a recording of the user, insert its words into the history, and return them.

        pcm: little-endian 16-bit mono PCM at 16 kHz. Raises ModelError. The history stays unchanged if the
        call fails or is cancelled.
        """
        text = await transcribe_recording(self.models.stt, pcm)
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

    def fill(self, words: str) -> None:
        """Speak a filler in front of the current reply's words, if ``may_fill``; it enters no history."""
        self._replies.fill(words)

    def end_filler(self) -> None:
        """End a filler that is a reply of its own (``ReplyRequest.is_filler``) with its current word."""
        self._replies.end_filler()

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
        self.options = options
        self.history.configure(options)
        self._replies.configure(options)
        for event in self.floor.configure(options):
            self._react(event)
        self._configured.set()

    def hand_over(self, options: Options, models: Models | None = None) -> int:
        """Replace the options, the language model and the voice, from the next reply on.

        models: None to keep them; the models that listen stay in any case. A reply that has begun goes on
        with the old ones; one that waits for the end of the user's turn is made anew. Returns the number of
        the last reply with the old ones.
        """
        last = self._replies.hand_over(models)
        self.configure(options)
        if models is not None:
            self.history.configure(options, models.llm)
        return last

    def hold(self, since: float) -> tuple[int, float] | None:
        """Stop play-out until ``release``: the client has disconnected and may return.

        since: loop time at which the client was last connected. Returns the number of the last reply that
        played and the seconds of it played by then; None if no reply has played.
        """
        self._end_overlap()
        self._overlap_timer.stop()
        return self._replies.hold(since)

    def release(self, unheard: Mapping[int, float] | None = None) -> None:
        """Resume after ``hold``. The caller's level is measured anew: the microphone may be another.

        unheard: seconds at the end of each reply, by its number, that the client receives again, in order.
        They count as heard once they have played, and can be interrupted until then.
        """
        self.floor.caller.forget()
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
        self.models.load_shedder.joined(id(self.events), self._now())  # the channel stands for the session
        audio: Channel[AudioChunk] = Channel(TRANSCRIBE_SLICES, "transcribe")
        transcriber = TurnTranscriber(self.models, self.floor, self._react)
        if self.options.greeting.strip():
            self.respond(ReplyRequest(words=self.options.greeting))
        self._replies.warm("")  # else the first answer waits until the instructions are read
        async with asyncio.TaskGroup() as tasks:
            vad = self.models.vad.stream()
            check_fits("vad stream", vad)
            tasks.create_task(
                hear(self._user_audio.chunks, vad, self.floor, self._react, audio, self._replies.echo)
            )
            tasks.create_task(transcriber.transcribe(audio))
            tasks.create_task(self._watch())
            await self._overflown.wait()
            raise Overloaded("the session's events are not read: keep receiving them")

    async def aclose(self) -> None:
        """Cancel the replies, wait until their tasks have ended, and close ``events``.

        Cancelling stops the wait; the replies are cancelled in any case, and ``events`` may stay open.
        """
        self._overlap_timer.stop()
        self._replies.close()
        self.models.load_shedder.left(id(self.events))
        await self._replies.cancelled.wait()
        self.events.close()

    def _react(self, event: FloorEvent | PartialTranscript) -> None:
        match event:
            case SpeechStarted():
                self._timer.user_began()
                self._emit(event)  # before the ReplyDone of the reply that it interrupts
                self._overlap_timer.stop()
                self._replies.yield_to_user()
                return
            case OverlapStarted():
                self._replies.current.pause()
                self._overlap_timer.start()
            case OverlapEnded(is_over=False):  # the timer runs on: the end of the sound is still to come
                self._emit(event)
                self._replies.current.resume()
                return
            case OverlapEnded() | BackchannelEnded():
                self._emit(event)
                self._overlap_timer.stop()
                self._replies.current.end_overlap()
                return
            case PauseStarted(at):
                self._replies.mark_pause(self._user_audio.arrival(at), self._now())
            case PartialTranscript(text):
                self._replies.warm(text)
            case Transcribed():
                self._replies.mark_transcribed(self._now())
            case EagerEndOfTurn(text):
                self._replies.guess(text)
            case TurnResumed():
                self._replies.drop_guess()
            case NothingSaid(error=error):
                self._replies.drop_guess()
                self._emit(event)
                self._replies.end_empty_turn(error)
                return
            case EndOfTurn(text, at):
                self._timer.user_spoke()
                self._emit(event)
                self._replies.end_turn(text, ("user", at))
                return
        self._emit(event)

    def _watch(self) -> Coroutine[Any, Any, None]:
        acts = self._is_quiet, lambda: bool(self.history.pending), self._prompt, self._part
        return watch(self._timer, lambda: self.options, *acts, self._configured)

    def _is_quiet(self) -> bool:
        return self.at_rest and not self._replies.current.held

    def _prompt(self, seconds: float) -> None:
        self._emit(NobodySpoke(max(0, self.received - int(seconds * RATE)), self.received))
        self._replies.prompt(self.options.idle_cue)

    def _part(self, words: str) -> None:
        self._end_overlap()
        self.respond(ReplyRequest(words=words, interruptible=self._timer.silent))

    def _end_overlap(self) -> None:
        for event in self.floor.dismiss_overlap():
            self._react(event)

    def _emit(self, event: Event) -> None:
        if not self.events.closed and not self.events.send_nowait(event):
            self._overflown.set()
        if isinstance(event, ReplyDone) and self.options.budget:
            for reached in self.options.budget.news():
                log.warning("%.0f %% of the budget of the %s are used", 100.0 * reached.share, reached.scope)
                self._emit(reached)

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
