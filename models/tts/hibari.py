"""Hibari voices (https://github.com/MMWilliams/hibari, Apache-2.0): 24 kHz, about 15 ms per sentence."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from rejoinder.models.adapter import Adapter, Packaged
from rejoinder.models.onnx.session import open_session
from rejoinder.models.seed import seed
from rejoinder.models.tts.voice import Piece, Voice
from rejoinder.models.tts.word_times import sounds
from rejoinder.pipeline.errors import ModelError

PACKAGED_VOICE = "heart"
"""The voice that is a part of the package."""
HIBARI_RATE = 24_000
"""Hertz."""
PHONEME_ENDS = "/CumSum_output_0"
"""The exported graph's tensor of the frame after each phoneme."""

EARLY_FRAMES = 1
"""Frames (25 ms) to subtract from the end of each phoneme: a forced alignment finds Hibari's words to end 38
ms before their predicted end, in the median (Piper's: 10 ms)."""


def open_voice(name: str, threads: int) -> Voice:
    """Open a voice by name; "heart" is part of the package. Raises ModelError."""
    ADAPTER.require()
    from hibari import Hibari
    from hibari.dsp import synth

    try:
        hibari = Hibari(voice=name, threads=threads)
    except Exception as error:
        raise ModelError("hibari", f"cannot load the voice {name!r}: {error}") from error
    # The package does not return durations, so its graph is opened again with one more output.
    hibari.sess = session = open_session(Path(hibari.model_path), threads, PHONEME_ENDS)

    def synthesise(text: str) -> Iterator[Piece]:
        sentences = [[each for each in row if each in hibari.vocab] for row in hibari.phonemize(text)]
        words = [word for phonemes in sentences for word in sounds((each, 0) for each in phonemes)[0]]
        begin, ends, noise = 0, list[int](), np.random.default_rng(seed())
        for phonemes in sentences:
            ids = hibari.ids(phonemes)
            made: Any = session.run(None, {"ids": np.array([ids]), "speed": np.ones(1, np.float32)})
            *spectrum, frames = made
            audio = synth(*(part[0] for part in spectrum), noise)
            after = (frames.reshape(-1) - EARLY_FRAMES) * (len(audio) // int(frames.max()))
            ends = ends + sounds(zip(phonemes, begin + after[1:-1], strict=True))[1]
            begin += len(audio)
            yield Piece(audio, words, ends)

    return Voice("hibari", HIBARI_RATE, synthesise)


def _names() -> list[str]:
    """Return the names of the voices in the package; only the default one if it is not installed."""
    if find_spec("hibari") is None:
        return [PACKAGED_VOICE]
    from hibari.voices import VOICES

    return list(VOICES)


ADAPTER = Adapter(
    "hibari",
    lambda voice, threads, placement: open_voice(voice, threads),
    packages=("hibari", "onnxruntime", "damga", "markdown_it"),
    packaged=Packaged(
        "hibari-tts",
        "text to speech, English, 24,000 Hz",
        "Apache-2.0",
        "Hibari",
        "https://github.com/MMWilliams/hibari",
    ),
    default=PACKAGED_VOICE,
    finder=lambda argument: argument or PACKAGED_VOICE,
    names=_names,
)
"""What the registry finds. It has one thread because it is slower on two."""
