"""Real recordings and real models for the contract tests; what is missing is skipped, with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

from rejoinder.agent.bench.cases.recordings import Recording, RecordingsMissing, read_set, speech_folder
from rejoinder.models.hints import PackageMissing
from rejoinder.models.registry import check, create, roles
from rejoinder.models.threads import Threads
from rejoinder.models.weights.fetch import WeightsMissing
from rejoinder.pipeline.audio.chunk import RATE, AudioChunk, Samples, to_pcm

THREADS = Threads(stt=1, llm=1, tts=1)


def model(spec: str) -> Any:
    """Load a model, or skip the test where its weights or its package are not there."""
    try:
        return create(spec, THREADS)
    except WeightsMissing as error:
        pytest.skip(str(error))
    except Exception as error:
        if "is not installed" in str(error):
            pytest.skip(str(error))
        raise


def need(*specs: str) -> None:
    """Skip the test where a model's weights or its package are not there; loads nothing."""
    for spec in specs:
        try:
            check(roles(spec.partition(":")[0])[0], spec)
        except (WeightsMissing, PackageMissing) as error:
            pytest.skip(str(error))


def recordings(name: str, count: int = 0, seconds: float = 30.0) -> list[Recording]:
    """Return ``count`` recordings spread over a set (0 is all of it), none longer than ``seconds``."""
    try:
        found = read_set(speech_folder(), name)
    except RecordingsMissing as error:
        pytest.skip(str(error))
    short = [recording for recording in found if recording.seconds <= seconds]
    return short[:: max(1, len(short) // count)][:count] if count else short


@cache
def heard(recording: Recording) -> AudioChunk:
    """Return the recording as one chunk at the rate of the listening half."""
    return chunk(recording.load(RATE))


def chunk(samples: Samples) -> AudioChunk:
    return AudioChunk(to_pcm(samples), RATE)


def silence(seconds: float) -> Samples:
    return np.zeros(int(seconds * RATE), np.float32)


def noise(seconds: float, level: float = 0.01) -> Samples:
    return np.random.default_rng(0).normal(0.0, level, int(seconds * RATE)).astype(np.float32)


def join(chunks: Sequence[AudioChunk], gap: float = 0.0) -> AudioChunk:
    """Return the chunks one after the other, ``gap`` seconds of silence behind each."""
    pause = bytes(2 * int(gap * RATE))
    return AudioChunk(b"".join(piece.pcm + pause for piece in chunks), RATE)


def word_error_rate(said: Sequence[str], recognised: Sequence[str]) -> float:
    """Return the errors per word after Whisper's normaliser, over all pairs together."""
    import jiwer
    from whisper_normalizer.english import EnglishTextNormalizer

    normal = EnglishTextNormalizer()
    rate: float = jiwer.wer([normal(text) for text in said], [normal(text) for text in recognised])
    return rate
