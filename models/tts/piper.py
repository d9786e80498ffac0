"""Piper voices (https://github.com/OHF-Voice/piper1-gpl): GPL-3.0-or-later, therefore an extra.

As shipped, Piper returns a sentence only when its last sample is synthesised. Here its graph (VITS: Kim et
al. 2021) is cut into three parts that synthesise the audio in slices (``slices.py``).
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rejoinder.models.adapter import Adapter
from rejoinder.models.onnx.session import open_session
from rejoinder.models.tts.graph import parts
from rejoinder.models.tts.slices import open_part, silent_frames, slices
from rejoinder.models.tts.voice import Piece, Voice
from rejoinder.models.tts.word_times import sounds
from rejoinder.pipeline.audio.chunk import Samples
from rejoinder.pipeline.errors import ModelError

log = logging.getLogger(__name__)

PEAK = 0.7
"""Peak level of ``LOUDNESS_SENTENCE``, normalised. One gain for all clauses of a voice keeps its prosody."""
LOUDNESS_SENTENCE = "The quick brown fox jumps over the lazy dog, and nobody minds."
"""The sentence that a voice's loudness is measured with."""

LENGTHS = "/Ceil_output_0"
"""The tensor of VITS exports with the number of frames of each phoneme."""
BEGIN = "^"
"""The phoneme before each sentence."""
PAD = "_"
"""The phoneme after each phoneme."""


def open_voice(path: Path, threads: int) -> Voice:
    """Open the voice ``path``, an .onnx file with its .onnx.json beside it. Raises ModelError.

    A voice whose graph cannot be cut is synthesised sentence by sentence.
    """
    ADAPTER.require()
    from piper import PiperVoice
    from piper.config import PiperConfig

    settings = path.with_name(path.name + ".json")
    try:
        config = PiperConfig.from_dict(json.loads(settings.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError) as error:
        raise ModelError("piper", f"cannot read {settings}: {error}") from error
    # PiperVoice.load would use all cores, with threads that spin.
    front, sliced = _open(path, threads)
    voice = PiperVoice(session=front, config=config)
    phonemize = lru_cache(maxsize=256)(voice.phonemize)  # as in spoken.py

    def pieces(text: str) -> Iterator[Piece]:
        sentences = [phonemes for phonemes in phonemize(text) if phonemes]
        words = [word for phonemes in sentences for word in sounds((phoneme, 0) for phoneme in phonemes)[0]]
        begin, ends = 0, list[int]()
        for phonemes in sentences:
            made, lengths = voice.phoneme_ids_to_audio(
                voice.phonemes_to_ids(phonemes), include_alignments=True
            )
            if lengths is not None:
                ends = ends + sounds(zip(phonemes, begin + _ends(phonemes, lengths, config), strict=True))[1]
                begin += int(lengths.sum())
            silent = silent_frames(lengths, config.hop_length) if lengths is not None else 0
            for audio in sliced(made, silent) if sliced else [made]:
                yield Piece(audio, words, ends)

    try:
        loudest = max(
            (float(np.abs(piece.audio).max(initial=0.0)) for piece in pieces(LOUDNESS_SENTENCE)), default=0.0
        )
    except Exception as error:
        raise ModelError("piper", f"{path} cannot speak: {error}") from error
    loudest = loudest or PEAK

    def synthesise(text: str) -> Iterator[Piece]:
        for piece in pieces(text):
            yield piece._replace(audio=np.clip(piece.audio * (PEAK / loudest), -1.0, 1.0))

    return Voice("piper", config.sample_rate, synthesise, shares_state=False)


def _open(path: Path, threads: int) -> tuple[Any, Callable[..., Iterator[Samples]] | None]:
    """Open the graph in three parts, or as a whole and without a function that makes slices."""
    try:
        front, flow_path, decoder_path = parts(path)
        flow, decode = open_part(flow_path, threads), open_part(decoder_path, threads)
        return open_session(front, threads, LENGTHS), partial(slices, flow, decode)
    except Exception as error:  # besides the errors of parts: onnx raises its own for a broken file
        log.info("%s is not spoken in slices: %s", path.name, error)
    try:
        return open_session(path, threads, LENGTHS), None
    except ModelError:
        return open_session(path, threads), None


def _ends(phonemes: Sequence[str], lengths: NDArray[np.int64], config: Any) -> NDArray[np.int64]:
    """Return the sample after each phoneme, int64 [phonemes].

    lengths: samples of each id, int64 [ids]. A phoneme has one id or several, and a pad after them.
    """
    ids = config.phoneme_id_map
    counts = [len(ids[each]) + len(ids[PAD]) if each in ids else 0 for each in (BEGIN, *phonemes)]
    ends: NDArray[np.int64] = np.cumsum(lengths)[np.cumsum(counts)[1:] - 1]
    return ends


ADAPTER = Adapter(
    "piper",
    lambda path, threads, placement: open_voice(path, threads),
    packages=("piper", "onnxruntime", "onnx", "damga", "markdown_it"),
    licence="GPL-3.0-or-later",
    weights="piper-{}",
    default="en_US-joe-medium",
    suffix=".onnx",
    share="tts",
)
"""What the registry finds."""
