"""What all voices share: words instead of symbols, no silence at the edges, one engine."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from rejoinder.models.tts.spoken import spoken
from rejoinder.models.tts.word_times import word_times
from rejoinder.pipeline.audio.chunk import AudioChunk, Samples, Words, to_pcm
from rejoinder.pipeline.engines.engine import Engine
from rejoinder.pipeline.errors import ModelError

AUDIBLE = 10 ** (-50 / 20)
"""Samples below this (-50 dBFS) at the edges of a clause are silence."""
LEAD_SECONDS = 0.002
TAIL_SECONDS = {".": 0.2, "!": 0.2, "?": 0.2, ":": 0.15, ";": 0.15, ",": 0.1}
"""Silence that stays after a clause, by its last character; one cut mid-phrase keeps next to none."""
CUT_TAIL_SECONDS = 0.02


class Piece(NamedTuple):
    """Some audio of a clause.

    sounds: the phonemes of the whole clause, word by word, where a voice tells them. ends: the samples of the
        clause at which they end, for as many words as is known by now.
    """

    audio: Samples
    sounds: Sequence[str] = ()
    ends: Sequence[int] = ()


Part = tuple[Samples, Words]
"""Some audio of a clause as it is heard, and when which words of its text are spoken, as known by now."""


class Voice:
    """A TTS model behind one engine, which makes the audio of a clause piece by piece.

    The engine's step is one piece, so a long clause does not hold up somebody else's first word.
    """

    def __init__(self, name: str, rate: int, synthesize: Callable[[str], Iterator[Piece]]) -> None:
        self.name = name
        self.rate = rate
        self._synthesize = synthesize
        self.engine: Engine[Iterator[Part], Part | None] = Engine(name, self._step)

    async def speak(self, text: str) -> AsyncGenerator[AudioChunk, None]:
        """Stream the audio of one clause; nothing comes for text without a spoken form.

        Closing the generator drops the rest of the clause; a piece that is being made is finished and thrown
        away. Raises ModelError.
        """
        pieces, position = self._clause(text), 0
        while piece := await self.engine.run(pieces):
            audio, words = piece
            yield AudioChunk(to_pcm(audio), self.rate, position, words)
            position += len(audio)

    def close(self) -> None:
        """End the engine's thread."""
        self.engine.close()

    def _step(self, batch: Sequence[Iterator[Part]]) -> list[Part | None]:
        return [next(pieces, None) for pieces in batch]

    def _clause(self, text: str) -> Iterator[Part]:
        if words := spoken(text):
            tail = TAIL_SECONDS.get(text.rstrip("\"')*_ ")[-1:], CUT_TAIL_SECONDS)
            known, times = 0, Words()
            try:
                for audio, sounds, ends in trim(self._synthesize(words), self.rate, tail):
                    if len(ends) > known:
                        known = len(ends)
                        times = word_times(text, words, sounds, [end / self.rate for end in ends])
                    yield audio, times
            except Exception as error:
                raise ModelError(self.name, f"cannot speak {words!r}: {error}") from error


def trim(pieces: Iterator[Piece], rate: int, tail: float) -> Iterator[Piece]:
    """Cut the silence around speech down to ``LEAD_SECONDS`` before and ``tail`` seconds after it.

    Models add up to 0.3 s before and 0.4 s after a clause (Hibari does); before the first word of a reply
    that silence is latency, and between two clauses it is a stumble. Silence is held back until sound
    follows it.
    """
    held, cut, piece = np.zeros(0, np.float32), -1, Piece(np.zeros(0, np.float32))
    for piece in pieces:
        held = np.concatenate((held, piece.audio))
        if len(loud := np.flatnonzero(np.abs(held) > AUDIBLE)):
            first, end = 0, loud[-1] + 1
            if cut < 0:
                cut = first = max(0, loud[0] - int(LEAD_SECONDS * rate))
            yield Piece(held[first:end], piece.sounds, [sample - cut for sample in piece.ends])
            held = held[end:]
    if cut >= 0 and len(rest := held[: int(tail * rate)]):
        yield Piece(rest, piece.sounds, [sample - cut for sample in piece.ends])
