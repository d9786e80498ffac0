"""Beeps are found on a telephone line, and neither speech nor music is one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import soxr
from support import speech

from rejoinder.agent.app.answering.beep import Beep, BeepDetector
from rejoinder.agent.wires import g711
from rejoinder.pipeline import RATE, AudioChunk, to_pcm
from rejoinder.pipeline.audio.resample import ToSession


def sine(hz: float, seconds: float, level: float = 0.1) -> Any:
    times = np.arange(int(seconds * RATE)) / RATE
    edges = np.minimum(1.0, np.minimum(times, times[::-1]) / 0.005)
    return level * edges * np.sin(2 * np.pi * hz * times)


def line(*sounds: Any, noise: float = 0.0) -> Any:
    """Return sounds between silences, as a telephone line with G.711 delivers them at 16 kHz."""
    silence = np.zeros(RATE // 2)
    whole = np.concatenate([silence, *sounds, silence])
    whole = whole + np.random.default_rng(0).normal(0.0, 1.0, len(whole)) * noise
    pcm = to_pcm(soxr.resample(whole, RATE, 8000).astype(np.float32))
    return ToSession(8000).feed(AudioChunk(g711.decode(g711.encode(pcm, "mulaw"), "mulaw"), 8000))


def beeps(audio: Any, size: int = 320) -> list[Beep]:
    """Return the beeps in audio that arrives in pieces of ``size`` samples."""
    detector = BeepDetector()
    return [
        found for first in range(0, len(audio), size) for found in detector.feed(audio[first : first + size])
    ]


@pytest.mark.parametrize("hz", [400, 440, 620, 850, 1000, 1400, 2000])
@pytest.mark.parametrize("seconds", [0.12, 0.3, 1.0, 1.5])
@pytest.mark.parametrize(("level", "snr_db"), [(0.3, 40), (0.1, 20), (0.02, 14)])
def test_beep_is_found_where_it_is(hz: float, seconds: float, level: float, snr_db: float) -> None:
    noise = level / np.sqrt(2) * 10 ** (-snr_db / 20)
    (found,) = beeps(line(sine(hz, seconds, level), noise=noise))
    assert found.hz == pytest.approx(hz, rel=0.01)
    assert found.start / RATE == pytest.approx(0.5, abs=0.035)
    assert found.seconds == pytest.approx(seconds, abs=0.04)


def test_pieces_of_audio_change_nothing() -> None:
    audio = line(sine(1000, 0.4), noise=0.001)
    assert beeps(audio, 160) == beeps(audio, 3200) == beeps(audio, len(audio))


def test_positions_count_from_where_the_detector_began() -> None:
    audio = line(sine(1000, 0.4))
    (early,), (late,) = BeepDetector().feed(audio), BeepDetector(48_000).feed(audio)
    assert late.start == early.start + 48_000


def test_tones_that_rise_are_three_beeps() -> None:
    found = beeps(line(sine(913.8, 0.33), sine(1370.6, 0.33), sine(1776.7, 0.33)))
    assert [round(each.hz, -1) for each in found] == [910, 1370, 1780]


@pytest.mark.parametrize(
    "sound",
    [
        sine(1000, 3.0),
        sine(1000, 0.05),
        sine(350, 0.4),
        sine(440, 0.5) + sine(480, 0.5),
        sine(697, 0.2) + sine(1209, 0.2),
        sine(523, 0.5) + sine(659, 0.5) + sine(784, 0.5),
        sine(300, 0.5) + 0.7 * sine(600, 0.5) + 0.5 * sine(900, 0.5) + 0.3 * sine(1200, 0.5),
        0.1 * np.sin(2 * np.pi * np.cumsum(np.linspace(500, 700, 6400)) / RATE),
        0.1 * np.random.default_rng(1).normal(0.0, 1.0, 8000),
    ],
    ids=["line tone", "click", "low", "ring", "key", "chord", "voice", "glide", "noise"],
)
def test_other_sounds_are_no_beeps(sound: Any) -> None:
    assert beeps(line(sound)) == []


@pytest.mark.parametrize("name", ["phone_prompts_8k", "assistant_utterances", "an4", "music", "noise"])
def test_recordings_have_no_beeps(name: str) -> None:
    """docs/lab/answered.md has the figure for all sets."""
    for recording in speech.recordings(name):
        assert beeps(recording.load(RATE), 16_000) == [], recording.path.name


def test_beep_right_after_speech_is_found() -> None:
    spoken = speech.recordings("phone_prompts_8k")[0].load(RATE)
    found = beeps(line(spoken, np.zeros(RATE // 5), sine(1400, 0.3)))
    assert [round(each.hz, -1) for each in found] == [1400]
