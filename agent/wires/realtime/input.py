"""The input audio buffer of the OpenAI Realtime protocol: the user's audio, and the turns it becomes."""

from __future__ import annotations

from collections.abc import Iterable

from rejoinder.agent.wires.commands import EndTurn, Hear
from rejoinder.agent.wires.long_messages import Base64
from rejoinder.agent.wires.realtime.events import ServerEvent, event, message_item, new_id, user_turn
from rejoinder.agent.wires.realtime.formats import (
    PCM,
    PCM_RATE,
    Format,
    check_whole,
    decoded,
    rate_of,
    width_of,
)
from rejoinder.agent.wires.realtime.items import Items
from rejoinder.pipeline import RATE, AudioChunk, ProtocolError, to_pcm
from rejoinder.pipeline.audio.resample import ToSession

HELD_SECONDS = 0.6
"""Audio of several messages that is resampled at once, at most: what a silent call reads at a time."""
RECORDING_SECONDS = 30
"""An item's audio is at most so long, because the call waits until it is transcribed."""


class InputBuffer:
    """The audio that no turn holds yet, and the turn being spoken; ``at`` counts samples of the session."""

    def __init__(self) -> None:
        self._format: Format = PCM
        self._resampler = ToSession(PCM_RATE)
        self._held = bytearray()
        self._uncommitted = 0
        self._ending = False
        self._speech: str | None = None
        self._speech_at = 0
        self._partial = ""

    @property
    def empty(self) -> bool:
        """Whether there is no audio that no turn holds."""
        return not self._uncommitted

    def take(self, format_: Format) -> None:
        """Take audio of this format from now on."""
        if format_ != self._format:
            self._format = format_
            self._resampler = ToSession(rate_of(format_))

    def append(self, data: bytes | Base64, more: bool = False) -> Iterable[Hear]:
        """Take audio for the session. Raises ProtocolError for half a sample, and for no base64.

        more: whether another message is here already: to resample a few frames costs little more than one.
        """
        if isinstance(data, Base64):
            if (size := data.size) is None:
                raise ProtocolError("audio: not base64", "invalid_value", "audio")
            check_whole(size, self._format, "audio")
            return self._long(data)
        pcm = decoded(data, self._format, "audio")
        self._uncommitted += len(pcm)
        self._held += pcm
        return () if more and len(self._held) < 2 * HELD_SECONDS * self._resampler.rate else self.held()

    def held(self) -> Iterable[Hear]:
        """Return the audio that waited for more."""
        pcm, self._held = bytes(self._held), bytearray()
        return self._resampled(pcm)

    def _long(self, data: Base64) -> Iterable[Hear]:
        """Decode and resample minutes of audio piece by piece, as they are taken."""
        yield from self.held()
        rest, width = b"", width_of(self._format)
        for piece in data.decoded():
            rest += piece
            end = len(rest) // width * width
            pcm, rest = decoded(rest[:end], self._format, "audio"), rest[end:]
            self._uncommitted += len(pcm)
            yield from self._resampled(pcm)

    def _resampled(self, pcm: bytes) -> Iterable[Hear]:
        """Resample minutes of audio a second at a time, as it is taken: nobody else waits for all of it."""
        rate = self._resampler.rate
        for piece in AudioChunk(pcm, rate).slices(rate):
            yield Hear(to_pcm(self._resampler.feed(piece)))

    def recording(self, data: bytes) -> bytes:
        """Return audio that is no part of the stream as the session takes it. Raises ProtocolError."""
        param = "item.content.0.audio"
        pcm, rate = decoded(data, self._format, param), rate_of(self._format)
        if len(pcm) > 2 * rate * RECORDING_SECONDS:
            reason = f"{param}: more than {RECORDING_SECONDS} s: append it to the input buffer instead"
            raise ProtocolError(reason, "invalid_value", param)
        return to_pcm(ToSession(rate).feed(AudioChunk(pcm, rate)))

    def commit(self) -> EndTurn:
        """End the user's turn. Raises ProtocolError where nothing is to be ended, or it is ending already."""
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
        """Forget the audio that was not committed."""
        self._uncommitted = 0

    def speech_started(self, at: int, padding_ms: int) -> list[ServerEvent]:
        """Tell of speech; ``padding_ms`` of the audio before it belong to its item."""
        self._speech, self._speech_at, self._partial = new_id("item"), at, ""
        start = max(0, at * 1000 // RATE - padding_ms)
        return [event("input_audio_buffer.speech_started", item_id=self._speech, audio_start_ms=start)]

    def heard_so_far(self, agreed: str) -> list[ServerEvent]:
        """Tell which words of the turn are new."""
        delta = agreed[len(self._partial) :]
        if not delta or not self._speech:
            return []
        self._partial = agreed
        type_ = "conversation.item.input_audio_transcription.delta"
        return [event(type_, item_id=self._speech, content_index=0, delta=delta)]

    def turn_ended(self, text: str, at: int, items: Items) -> list[ServerEvent]:
        """Tell of the end of the user's turn; noise without words makes an item too, but an empty one."""
        events = []
        spoken, id_, self._speech = self._speech, self._speech or new_id("item"), None
        if spoken:  # else the client committed what was no speech, or holds its own button
            stopped = event("input_audio_buffer.speech_stopped", item_id=id_, audio_end_ms=at * 1000 // RATE)
            events.append(stopped)
        return events + self._committed(id_, text, at, items)

    def nobody_spoke(self, since: int, at: int, items: Items) -> list[ServerEvent]:
        """Tell of a silence that the agent breaks; it makes an empty item, as noise does."""
        id_ = new_id("item")
        self._speech_at = since
        stretch = {"audio_start_ms": since * 1000 // RATE, "audio_end_ms": at * 1000 // RATE}
        triggered = event("input_audio_buffer.timeout_triggered", item_id=id_, **stretch)
        return [triggered, *self._committed(id_, "", at, items)]

    def _committed(self, id_: str, text: str, at: int, items: Items) -> list[ServerEvent]:
        item = message_item(id_, "user", [{"type": "input_audio", "transcript": text}], "completed")
        seconds = max(0.0, (at - self._speech_at) / RATE)
        self._speech_at = at
        if not self._ending:  # a commit has counted already, and what came since is the next one's
            self._uncommitted = 0
        self._ending = False
        previous = items.keep(item, ("user", at) if text else None)
        return user_turn(item, previous, seconds, text)
