"""Whisper's state of one session: the audio and the words of a turn, which may be longer than a window."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import numpy as np

from rejoinder.models.stt.whisper_words import Words
from rejoinder.pipeline.audio.chunk import RATE, AudioChunk, Samples
from rejoinder.pipeline.interfaces import Transcript

FREEZE_SECONDS = 24
"""Audio of a turn that each transcription recognises again. The words of older audio are frozen."""


class WhisperStream:
    """The audio of one turn: about the last ``FREEZE_SECONDS``, and the frozen words before that.

    recognise: returns the words of up to 30 s of audio. Raises ModelError.
    """

    def __init__(self, recognise: Callable[[Samples], Awaitable[Words]]) -> None:
        self._recognise = recognise
        self._frozen: list[str] = []
        self._chunks: list[Samples] = []
        self._length = 0
        self._end = 0

    def feed(self, chunk: AudioChunk) -> None:
        """Add audio of the turn. Raises ValueError if the audio is not at 16 kHz."""
        if chunk.rate != RATE:
            raise ValueError(f"Whisper listens at {RATE} Hz, not {chunk.rate}")
        self._chunks.append(chunk.samples())
        self._length += len(chunk)
        self._end = chunk.end

    async def transcribe(self, is_final: bool) -> Transcript:
        """Recognise the turn so far. Cancelling keeps the audio. Raises ModelError."""
        end = self._end
        while self._length > FREEZE_SECONDS * RATE:
            await self._freeze()
        words = await self._recognise(self._audio())
        if self._frozen:
            whole = " ".join(filter(None, [*self._frozen, words.text]))
            # The probability is None if the rest has no words.
            return Transcript(whole, is_final, end, end_probability=words.over)
        return Transcript(words.text, is_final, end, words.others, words.over)

    def reset(self) -> None:
        """Drop the audio and the words of the turn."""
        self._frozen, self._chunks, self._length = [], [], 0

    def _audio(self) -> Samples:
        self._chunks = [np.concatenate(self._chunks)] if self._chunks else [np.zeros(0, np.float32)]
        return self._chunks[0]

    async def _freeze(self) -> None:
        """Freeze the words up to the quietest moment in the second half of the audio."""
        audio = self._audio()[: FREEZE_SECONDS * RATE]
        cut = quietest(audio, len(audio) // 2)
        frozen = self._frozen
        words = await self._recognise(audio[:cut])
        if frozen is not self._frozen:
            return  # the turn was reset meanwhile
        frozen.append(words.text)
        self._chunks = [self._audio()[cut:]]
        self._length -= cut


def quietest(audio: Samples, start: int) -> int:
    """Return the middle sample of the quietest 0.2 s of audio at or after sample ``start``."""
    width = RATE // 5
    power = np.concatenate(([0.0], np.cumsum(np.square(audio[start:], dtype=np.float64))))
    sums = power[width:] - power[:-width]
    return start + int(np.argmin(sums)) + width // 2
