"""The common part of all voices: text to words, trimmed silence, and one engine per voice."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from rejoinder.models.tts.spoken import spoken
from rejoinder.models.tts.word_times import word_times
from rejoinder.pipeline.audio.chunk import AudioChunk, Samples, Words, to_pcm
from rejoinder.pipeline.audio.loudness import AUDIBLE
from rejoinder.pipeline.engines.engine import Engine
from rejoinder.pipeline.errors import ModelError

CLAUSE_LEAD_SECONDS = 0.002
"""Silence that is kept before a clause."""
CLAUSE_TAIL_SECONDS = {".": 0.2, "!": 0.2, "?": 0.2, ":": 0.15, ";": 0.15, ",": 0.1}
"""Silence that is kept after a clause, by its last character."""
CUT_TAIL_SECONDS = 0.02
"""Silence that is kept after a clause that ends without such a character."""


class Piece(NamedTuple):
    """A piece of a clause's audio.

    audio: float32 [samples].
    sounds: the phonemes of the whole clause, one string per word; empty if the voice does not report them.
    ends: the sample of the clause at which each of these words ends, for the words known so far.
    """

    audio: Samples
    sounds: Sequence[str] = ()
    ends: Sequence[int] = ()


Part = tuple[Samples, Words]
"""A piece of a clause's trimmed audio, and the times of the words known so far."""


class Voice:
    """A TTS model behind one engine, which synthesises a clause piece by piece.

    A step of the engine is one piece, so a long clause does not delay the first word of another caller.

    rate: sample rate in hertz. synthesise: yields the pieces of a text. shares_state: whether pieces of two
    texts may not be synthesised at the same time.
    """

    def __init__(
        self, name: str, rate: int, synthesise: Callable[[str], Iterator[Piece]], shares_state: bool = True
    ) -> None:
        self.name = name
        self.rate = rate
        self._synthesise = synthesise
        self.engine: Engine[Iterator[Part], Part | None] = Engine(name, self._step, shares_state=shares_state)

    async def speak(self, text: str) -> AsyncGenerator[AudioChunk, None]:
        """Stream the audio of one clause; no audio for text without a spoken form.

        Closing the generator drops the rest of the clause. A piece that is being synthesised is finished and
        dropped. Raises ModelError.
        """
        pieces, position = self._clause(text), 0
        while piece := await self.engine.run(pieces):
            audio, words = piece
            yield AudioChunk(to_pcm(audio), self.rate, position, words)
            position += len(audio)

    def close(self) -> None:
        """Stop the engine's thread."""
        self.engine.close()

    def _step(self, batch: Sequence[Iterator[Part]]) -> list[Part | None]:
        return [next(pieces, None) for pieces in batch]

    def _clause(self, text: str) -> Iterator[Part]:
        if words := spoken(text):
            tail = CLAUSE_TAIL_SECONDS.get(text.rstrip("\"')*_ ")[-1:], CUT_TAIL_SECONDS)
            known, times = 0, Words()
            try:
                for audio, sounds, ends in trim(self._synthesise(words), self.rate, tail):
                    if len(ends) > known:
                        known = len(ends)
                        times = word_times(text, words, sounds, [end / self.rate for end in ends])
                    yield audio, times
            except Exception as error:
                raise ModelError(self.name, f"cannot speak {words!r}: {error}") from error


def trim(pieces: Iterator[Piece], rate: int, tail: float) -> Iterator[Piece]:
    """Trim the silence around speech to ``CLAUSE_LEAD_SECONDS`` before and ``tail`` seconds after it.

    Models add up to 0.3 s of silence before and 0.4 s after a clause (Hibari does). Before the first word of
    a reply that silence is latency; between two clauses it is an unnatural pause. Silence inside a clause is
    held back until sound follows. rate: hertz.
    """
    held, cut, piece = np.zeros(0, np.float32), -1, Piece(np.zeros(0, np.float32))
    for piece in pieces:
        held = np.concatenate((held, piece.audio))
        if len(loud := np.flatnonzero(np.abs(held) > AUDIBLE)):
            first, end = 0, loud[-1] + 1
            if cut < 0:
                cut = first = max(0, loud[0] - int(CLAUSE_LEAD_SECONDS * rate))
            yield Piece(held[first:end], piece.sounds, [sample - cut for sample in piece.ends])
            held = held[end:]
    if cut >= 0 and len(rest := held[: int(tail * rate)]):
        yield Piece(rest, piece.sounds, [sample - cut for sample in piece.ends])
