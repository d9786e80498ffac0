"""Where a voice begins in a sound."""

from __future__ import annotations

import numpy as np
import pytest
from support import speech

from rejoinder.agent.bench.cases.recordings import speech_begin, speech_end
from rejoinder.agent.bench.cases.voicing import first_voiced
from rejoinder.pipeline.audio.chunk import Samples

RATE = 24_000


def noise(seconds: float, level: float) -> Samples:
    return np.random.default_rng(0).normal(0, level, int(seconds * RATE)).astype(np.float32)


def buzz(seconds: float, pitch: float) -> Samples:
    """Return a voice: a pitch and its harmonics, each softer than the one before."""
    times = np.arange(int(seconds * RATE)) / RATE
    whole = sum(np.sin(2 * np.pi * pitch * k * times) / k for k in range(1, 12))
    return np.asarray(0.1 * whole, np.float32)


@pytest.mark.parametrize("pitch", [80, 120, 210, 330])
def test_a_voice_begins_behind_a_breath_and_a_hiss(pitch: float) -> None:
    audio = np.concatenate((noise(0.3, 0.001), noise(0.2, 0.05), buzz(0.5, pitch), noise(0.3, 0.001)))
    assert first_voiced(audio, RATE) / RATE == pytest.approx(0.5, abs=0.021)


def test_a_hum_far_below_the_voice_is_none() -> None:
    audio = buzz(1.0, 100) * 0.01
    audio[RATE // 2 :] += buzz(0.5, 150)
    assert first_voiced(audio, RATE) / RATE == pytest.approx(0.5, abs=0.021)


def test_unvoiced_sound_counts_from_its_beginning() -> None:
    assert first_voiced(noise(1.0, 0.05), RATE) == 0
    assert first_voiced(noise(0.02, 0.05), RATE) == 0
    assert first_voiced(noise(0.0, 0.05), RATE) == 0


def test_recorded_voices_begin_soon_after_their_sound() -> None:
    after = []
    for recording in speech.recordings("read_misc"):
        audio = recording.load(RATE)
        audio = audio[speech_begin(audio, RATE) : speech_end(audio, RATE)]
        after.append(first_voiced(audio, RATE) / RATE)
    assert len(after) >= 10
    assert float(np.median(after)) < 0.06 and max(after) < 0.25
