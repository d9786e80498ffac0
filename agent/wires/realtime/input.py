"""The input audio buffer of the OpenAI Realtime protocol: the user's audio and the turns in it."""

from __future__ import annotations

from collections.abc import Iterator

from rejoinder.agent.wires import g711
from rejoinder.agent.wires.commands import EndTurn, Hear, ReadMore
from rejoinder.agent.wires.failures import PublicError
from rejoinder.agent.wires.ids import new_id
from rejoinder.agent.wires.long_messages import Base64
from rejoinder.agent.wires.realtime.events import ServerEvent, event, message_item, user_turn
from rejoinder.agent.wires.realtime.formats import (
    LAWS,
    PCM,
    PCM_RATE,
    Format,
    Pcm,
    decoded,
    half_a_sample,
    not_base64,
)
from rejoinder.agent.wires.realtime.items import Items
from rejoinder.pipeline import RATE, ProtocolError, to_pcm
from rejoinder.pipeline.audio.resample import ToSession

HELD_SECONDS = 0.6
"""Most audio of several messages that is resampled in one step, in seconds: one read of a silent call."""
RECORDING_SECONDS = 30
"""Most audio in one item, in seconds: the call waits until it is transcribed."""


class InputBuffer:
    """The audio that is in no turn yet, and the current turn.

    Arguments named ``at`` count session samples.
    """

    def __init__(self) -> None:
        self._format: Format = PCM
        self._resampler = ToSession(PCM_RATE)
        self._held = bytearray()
        self._unread: Iterator[bytes] = iter(())
        self._half = b""
        self._uncommitted = 0
        self._ending = False
        self._speech: str | None = None
        self._speech_at = 0
        self._partial = ""

    @property
    def empty(self) -> bool:
        """Whether no audio waits for a commit."""
        return not self._uncommitted

    def use(self, format_: Format) -> None:
        """Set the format of the audio that follows."""
        if format_ != self._format:
            self._format = format_
            self._resampler = ToSession(format_.sample_rate)

    def append(self, audio: str, more: bool = False) -> list[Hear]:
        """Take audio in base64; return it for the session.

        Raises ProtocolError for half a sample and for invalid base64. more: whether another message is here
        already. The audio may then be held: resampling several messages costs little more than one.
        """
        pcm = decoded(audio, self._format, "audio")
        self._uncommitted += len(pcm)
        self._held += pcm
        return [] if more and len(self._held) < 2 * HELD_SECONDS * self._resampler.rate else self.held()

    def held(self) -> list[Hear]:
        """Return the audio that ``append`` has held back, in the session's format, by the second."""
        pcm, self._held = bytes(self._held), bytearray()
        heard, rate = [], self._resampler.rate
        for at in range(0, len(pcm), 2 * rate):
            heard.append(Hear(to_pcm(self._resampler.feed(pcm[at : at + 2 * rate]))))
        return heard

    def append_long(self, audio: Base64) -> list[Hear | ReadMore]:
        """Take minutes of audio, which ``read_more`` decodes piece by piece. Raises as ``append`` does."""
        if (size := audio.size) is None:
            raise not_base64("audio")
        if size % self._format.sample_bytes:
            raise half_a_sample(size, "audio")
        self._unread, self._half = audio.decoded(), b""
        return [*self.held(), ReadMore()]

    def read_more(self) -> list[Hear | ReadMore]:
        """Return the next piece of long audio for the session."""
        piece = next(self._unread, None)
        if piece is None:
            return []
        whole = self._half + piece
        end = len(whole) // self._format.sample_bytes * self._format.sample_bytes
        data, self._half = whole[:end], whole[end:]
        pcm = data if isinstance(self._format, Pcm) else g711.decode(data, LAWS[self._format.type])
        self._uncommitted += len(pcm)
        self._held += pcm
        return [*self.held(), ReadMore()]

    def recording(self, audio: str) -> bytes:
        """Return an item's audio, in base64, in the session's format.

        Raises ProtocolError for audio that is invalid or too long.
        """
        param = "item.content.0.audio"
        pcm, rate = decoded(audio, self._format, param), self._format.sample_rate
        if len(pcm) > 2 * rate * RECORDING_SECONDS:
            reason = f"{param}: more than {RECORDING_SECONDS} s: append it to the input buffer instead"
            raise ProtocolError(reason, "invalid_value", param)
        return to_pcm(ToSession(rate).feed(pcm))

    def commit(self) -> EndTurn:
        """End the user's turn. Raises ProtocolError where there is no audio, or a commit is in progress."""
        if not self._uncommitted:
            reason = "Error committing input audio buffer: buffer too small, there is no audio in it"
            raise ProtocolError(reason, "input_audio_buffer_commit_empty")
        if self._ending:
            reason = "the audio committed before is still being recognised: commit when its item was added"
            raise ProtocolError(reason, "input_audio_buffer_commit_active")
        self._uncommitted = 0
        self._ending = True
        return EndTurn()

    def clear(self) -> None:
        """Drop the audio that was not committed."""
        self._uncommitted = 0

    def speech_started(self, at: int, padding_ms: int) -> list[ServerEvent]:
        """Return the event for the start of speech. The item begins ``padding_ms`` before it."""
        self._speech, self._speech_at, self._partial = new_id("item"), at, ""
        start = max(0, at * 1000 // RATE - padding_ms)
        return [event("input_audio_buffer.speech_started", item_id=self._speech, audio_start_ms=start)]

    def partial(self, agreed: str) -> list[ServerEvent]:
        """Return the event with the new words of a partial transcript.

        agreed: the stable words of the turn.
        """
        delta = agreed[len(self._partial) :]
        if not delta or not self._speech:
            return []
        self._partial = agreed
        type_ = "conversation.item.input_audio_transcription.delta"
        return [event(type_, item_id=self._speech, content_index=0, delta=delta)]

    def turn_ended(
        self, text: str, at: int, items: Items, error: PublicError | None = None
    ) -> list[ServerEvent]:
        """Return the events for the end of the user's turn. Noise without words makes an empty item.

        error: why the words are not known, None if they are.
        """
        events = []
        spoken, id_, self._speech = self._speech, self._speech or new_id("item"), None
        if spoken:  # else the client committed audio without speech, or detects turns itself
            stopped = event("input_audio_buffer.speech_stopped", item_id=id_, audio_end_ms=at * 1000 // RATE)
            events.append(stopped)
        return events + self._committed(id_, text, at, items, error)

    def timed_out(self, since: int, at: int, items: Items) -> list[ServerEvent]:
        """Return the events for a silence that the agent breaks. It makes an empty item, as noise does."""
        id_ = new_id("item")
        self._speech_at = since
        stretch = {"audio_start_ms": since * 1000 // RATE, "audio_end_ms": at * 1000 // RATE}
        triggered = event("input_audio_buffer.timeout_triggered", item_id=id_, **stretch)
        return [triggered, *self._committed(id_, "", at, items)]

    def _committed(
        self, id_: str, text: str, at: int, items: Items, error: PublicError | None = None
    ) -> list[ServerEvent]:
        item = message_item(id_, "user", [{"type": "input_audio", "transcript": text}], "completed")
        seconds = max(0.0, (at - self._speech_at) / RATE)
        self._speech_at = at
        if not self._ending:  # a commit has reset the count, and audio since then is for the next one
            self._uncommitted = 0
        self._ending = False
        previous = items.keep(item, ("user", at) if text else None)
        return user_turn(item, previous, seconds, text, error)
