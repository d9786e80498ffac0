"""Piper voices (https://github.com/OHF-Voice/piper1-gpl): GPL-3.0-or-later, hence an extra.

As shipped, Piper gives the first sample of a sentence when the last one is made. Its graph (VITS: Kim et al.
2021) is cut in three here, and makes the audio in slices (``slices.py``).
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

from rejoinder.models.hints import require
from rejoinder.models.onnx.session import open_session
from rejoinder.models.tts.graph import parts
from rejoinder.models.tts.slices import open_part, silent_frames, slices
from rejoinder.models.tts.voice import Piece, Voice
from rejoinder.models.tts.word_times import sounds
from rejoinder.pipeline.audio.chunk import Samples
from rejoinder.pipeline.errors import ModelError

log = logging.getLogger(__name__)

PEAK = 0.7
"""Loudest sample of a sentence of the usual loudness; one gain for all of a voice's clauses keeps prosody."""
USUAL = "The quick brown fox jumps over the lazy dog, and nobody minds."

LENGTHS = "/Ceil_output_0"
"""What VITS exports call the frames that each phoneme takes, before the flow."""
BEGIN, PAD = "^", "_"


def open_voice(path: Path, threads: int, cuda: bool = False) -> Voice:
    """Open the voice ``path`` (an .onnx file with its .onnx.json beside it). Raises ModelError.

    A voice that cannot be cut is spoken a sentence at a time. cuda: on the GPU, as far as onnxruntime can.
    """
    require("piper")
    from piper import PiperVoice
    from piper.config import PiperConfig

    settings = path.with_name(path.name + ".json")
    try:
        config = PiperConfig.from_dict(json.loads(settings.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError) as error:
        raise ModelError("piper", f"cannot read {settings}: {error}") from error
    # PiperVoice.load would give its session all cores and let their threads spin.
    front, sliced = _open(path, threads, cuda)
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
        loudest = max((float(np.abs(piece.audio).max(initial=0.0)) for piece in pieces(USUAL)), default=0.0)
    except Exception as error:
        raise ModelError("piper", f"{path} cannot speak: {error}") from error
    loudest = loudest or PEAK

    def synthesize(text: str) -> Iterator[Piece]:
        for piece in pieces(text):
            yield piece._replace(audio=np.clip(piece.audio * (PEAK / loudest), -1.0, 1.0))

    return Voice("piper", config.sample_rate, synthesize)


def _open(path: Path, threads: int, cuda: bool) -> tuple[Any, Callable[..., Iterator[Samples]] | None]:
    """Open the graph in three parts, or whole and with nothing that makes slices."""
    try:
        front, flow_path, decoder_path = parts(path)
        flow, decode = open_part(flow_path, threads, cuda), open_part(decoder_path, threads, cuda)
        return open_session(front, threads, LENGTHS, cuda), partial(slices, flow, decode)
    except Exception as error:  # not only what parts says: onnx raises errors of its own on a broken file
        log.info("%s is not spoken in slices: %s", path.name, error)
    try:
        return open_session(path, threads, LENGTHS, cuda), None
    except ModelError:
        return open_session(path, threads, cuda=cuda), None


def _ends(phonemes: Sequence[str], lengths: NDArray[np.int64], config: Any) -> NDArray[np.int64]:
    """Return the sample after each phoneme; it has one id or several, and a pad behind them."""
    ids = config.phoneme_id_map
    counts = [len(ids[each]) + len(ids[PAD]) if each in ids else 0 for each in (BEGIN, *phonemes)]
    ends: NDArray[np.int64] = np.cumsum(lengths)[np.cumsum(counts)[1:] - 1]
    return ends
