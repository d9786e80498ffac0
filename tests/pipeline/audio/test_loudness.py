"""How loud a turn is, and since when its speaker has been quiet."""

from __future__ import annotations

import numpy as np
import pytest

from rejoinder.pipeline.audio.chunk import RATE, AudioChunk, to_pcm
from rejoinder.pipeline.audio.loudness import HOP_SAMPLES, LATE_SAMPLES, Loudness


def sound(*levels: float, hops: int = 10) -> bytes:
    """Noise at each level in turn, for this many hops each."""
    noise = np.random.default_rng(0).uniform(-1.0, 1.0, (len(levels), hops * HOP_SAMPLES))
    return to_pcm((noise * np.array(levels)[:, None]).astype(np.float32).reshape(-1))


def fed(pcm: bytes, at: int = 0, size: int = 2 * HOP_SAMPLES) -> Loudness:
    loudness = Loudness()
    for chunk in AudioChunk(pcm, RATE, at).slices(size):
        loudness.feed(chunk)
    return loudness


def test_quiet_begins_where_the_level_fell() -> None:
    assert fed(sound(0.5, 0.01), at=1000).quiet_from == 1000 + 10 * HOP_SAMPLES


@pytest.mark.parametrize(("level", "quiet"), [(0.035, False), (0.02, True)])
def test_quiet_is_25_db_below_the_loudest(level: float, quiet: bool) -> None:
    assert (fed(sound(0.5, level)).quiet_from is not None) is quiet


def test_a_word_after_the_dip_ends_it() -> None:
    assert fed(sound(0.5, 0.01, 0.5)).quiet_from is None
    assert fed(sound(0.5, 0.01, 0.5, 0.01)).quiet_from == 30 * HOP_SAMPLES


def test_noise_all_along_is_never_quiet() -> None:
    """A loud room hides the end of speech from the level; voice activity has to find it."""
    assert fed(sound(0.5, 0.2)).quiet_from is None


def test_a_pause_is_quiet_since_the_level_fell_or_since_voice_activity_says_so() -> None:
    fell, late = 10 * HOP_SAMPLES, LATE_SAMPLES
    level = fed(sound(0.5, 0.01, hops=10))
    told = {
        pause: level.quiet_before(pause)
        for pause in (fell + HOP_SAMPLES, fell + late, fell + late + 1, fell - HOP_SAMPLES)
    }
    assert list(told.values()) == [fell, fell, fell + late + 1, fell - HOP_SAMPLES]
    assert fed(sound(0.5, 0.2)).quiet_before(fell) == fell, "never quiet by the level"


def test_silence_from_the_start_is_quiet() -> None:
    assert fed(bytes(2 * RATE)).quiet_from == 0


@pytest.mark.parametrize("size", [1, 100, HOP_SAMPLES, 1000])
def test_the_size_of_chunks_hardly_matters(size: int) -> None:
    quiet = fed(sound(0.5, 0.01), size=size).quiet_from
    assert quiet is not None and abs(quiet - 10 * HOP_SAMPLES) < HOP_SAMPLES
