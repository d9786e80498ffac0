"""Piper voices (https://github.com/OHF-Voice/piper1-gpl): GPL-3.0-or-later, hence an extra.

As shipped, Piper gives the first sample of a sentence when the last one is made. Its graph (VITS: a text
encoder and a flow, then a decoder of small receptive field) hangs together by one tensor; cut there, the
decoder makes the audio in slices, and the first one is heard while the others are being made.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rejoinder.models.graph import halves
from rejoinder.models.hints import require
from rejoinder.models.onnx import open_session
from rejoinder.models.voice import Piece, Voice
from rejoinder.models.window import START, STOP
from rejoinder.models.word_times import sounds
from rejoinder.pipeline.audio import Samples
from rejoinder.pipeline.errors import ModelError

log = logging.getLogger(__name__)

SIZES = (5, 12, 48)
"""Frames of 12 ms in the first slice, which somebody waits for, in the second, and in all others."""
OVERLAP_FRAMES = 8
"""Frames that the decoder sees on both sides of a slice: the audio then equals the whole's to 0.5 %."""
EARLY_FRAMES = 1
"""So long before the end of the silence with which Piper begins every sentence, sound may begin."""
PEAK = 0.7
"""Loudest sample of a sentence of the usual loudness; one gain for all of a voice's clauses keeps prosody."""
USUAL = "The quick brown fox jumps over the lazy dog, and nobody minds."

LENGTHS = "/Ceil_output_0"
"""What VITS exports call the frames that each phoneme takes, before the flow."""
BEGIN, PAD = "^", "_"

Decode = Callable[[NDArray[np.float32], int, int], Samples]
"""Make audio of frames (channels, time), from one of them to before another."""


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
    front, decode = _open(path, threads, cuda)
    voice = PiperVoice(session=front, config=config)

    def pieces(text: str) -> Iterator[Piece]:
        sentences = [phonemes for phonemes in voice.phonemize(text) if phonemes]
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
            for audio in slices(made, decode, silent) if decode else [made]:
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


def _open(path: Path, threads: int, cuda: bool) -> tuple[Any, Decode | None]:
    """Open the graph in two halves, or whole and without a decoder of its own."""
    try:
        first, second = halves(path)
        front = open_session(first, threads, LENGTHS, cuda)
        decode = decoder(second, threads, cuda)
    except Exception as error:  # not only what halves says: onnx raises errors of its own on a broken file
        log.info("%s is not spoken in slices: %s", path.name, error)
        try:
            return open_session(path, threads, LENGTHS, cuda), None
        except ModelError:
            return open_session(path, threads, cuda=cuda), None

    return front, decode


def decoder(path: Path, threads: int, cuda: bool = False) -> Decode:
    """Open the decoder's half of a graph. Raises ModelError."""
    session = open_session(path, threads, cuda=cuda)
    (seam,) = {each.name for each in session.get_inputs()} - {START, STOP}

    def decode(frames: NDArray[np.float32], start: int, stop: int) -> Samples:
        feed = {seam: frames[np.newaxis], START: np.array([start]), STOP: np.array([stop])}
        audio: Samples = session.run(None, feed)[0].reshape(-1)
        return audio

    return decode


def _ends(phonemes: Sequence[str], lengths: NDArray[np.int64], config: Any) -> NDArray[np.int64]:
    """Return the sample after each phoneme; it has one id or several, and a pad behind them."""
    ids = config.phoneme_id_map
    counts = [len(ids[each]) + len(ids[PAD]) if each in ids else 0 for each in (BEGIN, *phonemes)]
    ends: NDArray[np.int64] = np.cumsum(lengths)[np.cumsum(counts)[1:] - 1]
    return ends


def silent_frames(lengths: NDArray[np.int64], hop: int) -> int:
    """Return how many frames hold silence before the first sound.

    lengths: how many samples each phoneme takes. hop: how many a frame has.
    """
    return max(0, int(lengths[0]) // hop - EARLY_FRAMES)


def slices(frames: NDArray[np.float32], decode: Decode, silent: int = 0) -> Iterator[Samples]:
    """Decode ``frames`` (channels, time) in slices that join without a seam.

    silent: as many at the beginning are silence, and need no decoding.
    """
    frames = frames.reshape(len(frames), -1)  # a single one has lost its second axis
    count = frames.shape[-1]
    start = silent = min(silent, count - 1)
    for size in chain(SIZES, repeat(SIZES[-1])):
        end = count if count - start - size < OVERLAP_FRAMES else start + size  # no crumb at the end
        left = max(0, start - OVERLAP_FRAMES)
        audio = decode(frames[:, left : end + OVERLAP_FRAMES], start - left, end - left)
        hop = len(audio) // (end - start)
        yield audio if start != silent else np.concatenate((np.zeros(silent * hop, np.float32), audio))
        if end == count:
            return
        start = end
