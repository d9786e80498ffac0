"""What all voices share: words instead of symbols, no silence at the edges, one engine."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Sequence

import numpy as np

from rejoinder.models.spoken import spoken
from rejoinder.pipeline.audio import AudioChunk, Samples, to_pcm
from rejoinder.pipeline.engine import Engine
from rejoinder.pipeline.errors import ModelError

AUDIBLE = 0.01
"""Samples below this (-40 dBFS) at the edges of a clause are silence."""
LEAD_SECONDS = 0.01
TAIL_SECONDS = {".": 0.2, "!": 0.2, "?": 0.2, ":": 0.15, ";": 0.15, ",": 0.1}
"""Silence that stays after a clause, by its last character; one cut mid-phrase keeps next to none."""
CUT_TAIL_SECONDS = 0.02


class Voice:
    """A TTS model that synthesises a whole clause at a time, behind one engine."""

    def __init__(self, name: str, rate: int, synthesize: Callable[[str], Samples]) -> None:
        self.name = name
        self.rate = rate
        self._synthesize = synthesize
        self._engine: Engine[str, Samples] = Engine(name, self._step)

    async def speak(self, text: str) -> AsyncGenerator[AudioChunk, None]:
        """Stream the audio of one clause: a single chunk, or none for text without a spoken form.

        Closing the generator drops the clause; one that is being synthesised is finished and thrown away.
        Raises ModelError.
        """
        audio = await self._engine.run(text)
        if len(audio):
            yield AudioChunk(to_pcm(audio), self.rate)

    def close(self) -> None:
        """End the engine's thread."""
        self._engine.close()

    def _step(self, batch: Sequence[str]) -> list[Samples]:
        return [self._clause(text) for text in batch]

    def _clause(self, text: str) -> Samples:
        words = spoken(text)
        if not words:
            return np.zeros(0, np.float32)
        try:
            audio = self._synthesize(words)
        except Exception as error:
            raise ModelError(self.name, f"cannot speak {words!r}: {error}") from error
        return trim(audio, self.rate, TAIL_SECONDS.get(text.rstrip("\"')*_ ")[-1:], CUT_TAIL_SECONDS))


def trim(audio: Samples, rate: int, tail: float) -> Samples:
    """Cut the silence around speech down to ``LEAD_SECONDS`` before and ``tail`` seconds after it.

    Models add up to 0.3 s before and 0.4 s after a clause (Hibari does); before the first word of a reply
    that silence is latency, and between two clauses it is a stumble.
    """
    loud = np.flatnonzero(np.abs(audio) > AUDIBLE)
    if not len(loud):
        return audio[:0]
    return audio[max(0, loud[0] - int(LEAD_SECONDS * rate)) : loud[-1] + 1 + int(tail * rate)]
