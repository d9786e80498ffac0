"""Hibari voices (https://github.com/MMWilliams/hibari, Apache-2.0): 24 kHz, about 15 ms a sentence."""

from __future__ import annotations

from collections.abc import Iterator

from rejoinder.models.hints import require
from rejoinder.models.voice import Piece, Voice
from rejoinder.pipeline.errors import ModelError

RATE = 24_000


def open_voice(name: str, threads: int) -> Voice:
    """Open a voice by name; "heart" is inside the package. Raises ModelError."""
    require("hibari")
    from hibari import Hibari

    try:
        hibari = Hibari(voice=name, threads=threads)
    except Exception as error:
        raise ModelError("hibari", f"cannot load the voice {name!r}: {error}") from error

    def synthesize(text: str) -> Iterator[Piece]:
        yield hibari(text), 0

    return Voice("hibari", RATE, synthesize)
