"""The waveform of a recording: how many peaks it has, and where."""

from __future__ import annotations

import io

import numpy as np
import pytest
import soundfile

from rejoinder.agent.recording.waveform import MOST_PEAKS, peaks
from rejoinder.pipeline import RATE


def recorded(seconds: float) -> tuple[io.BytesIO, np.ndarray]:
    audio = np.zeros((int(seconds * RATE), 2), np.float32)
    audio[len(audio) // 2, 0] = -0.5
    audio[len(audio) // 4, 1] = 0.25
    file = io.BytesIO()
    soundfile.write(file, audio, RATE, format="FLAC")
    file.seek(0)
    return file, audio


@pytest.mark.parametrize("seconds", [0.01, 1.0, 7.3, 300.0])
def test_peaks_are_where_the_sounds_are(seconds: float) -> None:
    file, _ = recorded(seconds)
    caller, agent = peaks(file, seconds)
    assert len(caller) == len(agent) and 0 < len(caller) <= MOST_PEAKS
    assert max(caller) == 50 and max(agent) == 25
    assert caller.index(50) / len(caller) == pytest.approx(0.5, abs=0.01)
    assert agent.index(25) / len(agent) == pytest.approx(0.25, abs=0.01)


def test_a_file_without_sound_has_no_peaks() -> None:
    file = io.BytesIO()
    soundfile.write(file, np.zeros((0, 2), np.float32), RATE, format="FLAC")
    file.seek(0)
    assert peaks(file, 0.0) == ([], [])
