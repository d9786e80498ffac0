"""The lines over which the recordings of the turns bench come."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support import speech
from support.serving import run_command

from rejoinder.agent.bench.cases.recordings import hop_power, loud_hops, speech_folder
from rejoinder.agent.bench.turns.cases import Case, cases
from rejoinder.agent.bench.turns.conditions import (
    CLEAN,
    CONDITIONS,
    PACKET,
    Sounds,
    shared_out,
    sounds,
    under,
)
from rejoinder.pipeline.audio.chunk import RATE, Samples
from rejoinder.pipeline.audio.loudness import HOP_SAMPLES


@pytest.fixture(scope="module")
def case() -> Case:
    return cases(speech.recordings("librispeech_test_other", 1)[0])[0]


@pytest.fixture(scope="module")
def added(case: Case) -> Sounds:
    return sounds(speech_folder(), [*CONDITIONS])


def above(audio: Samples, limit: float) -> float:
    """Return the share of the power above a frequency in hertz."""
    power = np.abs(np.fft.rfft(audio)) ** 2
    return float(power[int(limit * len(audio) / RATE) :].sum() / power.sum())


@pytest.mark.parametrize("condition", [name for name in CONDITIONS if name != CLEAN])
def test_a_line_changes_the_sound_and_neither_its_length_nor_its_place(
    condition: str, case: Case, added: Sounds
) -> None:
    heard = under(case, condition, added)
    assert heard.condition == condition and (heard.at, heard.seconds) == (case.at, case.seconds)
    assert heard.audio.shape == case.audio.shape and heard.audio.dtype == np.float32
    assert np.abs(heard.audio).max() <= 1.0 and not np.allclose(heard.audio, case.audio, atol=1e-4)
    assert np.array_equal(heard.audio, under(case, condition, added).audio)
    one, other = (
        np.sqrt(hop_power(audio[: case.at], HOP_SAMPLES // 2)) for audio in (case.audio, heard.audio)
    )
    alike = np.correlate(other - other.mean(), one - one.mean(), "full")
    late_ms = (int(np.argmax(alike)) - len(one) + 1) * 5
    assert abs(late_ms) <= 10


def test_noise_is_as_loud_as_its_name_says(case: Case, added: Sounds) -> None:
    plain, noisy = (under(case, name, added).audio for name in ("telephone", "telephone-noise"))
    loud = loud_hops(case.audio, RATE)
    power, with_noise = (hop_power(audio, HOP_SAMPLES)[: len(loud)] for audio in (plain, noisy))
    noise = np.mean(with_noise[~loud]) - np.mean(power[~loud])
    assert 10 * np.log10(np.mean(power[loud]) / noise) == pytest.approx(15.0, abs=3.0)


def test_a_telephone_has_no_high_tones_and_a_quiet_caller_is_quiet(case: Case, added: Sounds) -> None:
    assert above(case.audio, 4_200.0) > 100 * above(under(case, "telephone", added).audio, 4_200.0)
    quiet = under(case, "quiet", added).audio
    assert np.allclose(quiet * 10, case.audio, atol=1e-6)


def test_lost_packets_repeat_what_was_before(case: Case, added: Sounds) -> None:
    whole, lossy = (under(case, name, added).audio for name in ("telephone", "telephone-loss"))
    packets = [slice(first, first + PACKET) for first in range(0, len(whole) - PACKET + 1, PACKET)]
    lost = [place for place in packets if not np.array_equal(whole[place], lossy[place])]
    assert 0.02 < len(lost) / len(packets) < 0.09


def test_recordings_are_shared_out_among_the_lines() -> None:
    lines = ["telephone", "room"]
    counts = [shared_out(f"{number}.flac", lines) for number in range(400)].count("room")
    assert 150 < counts < 250 and shared_out("1.flac", [CLEAN]) == CLEAN


def test_an_unknown_line_is_refused(tmp_path: Path) -> None:
    speech.recordings("an4", 1)  # skips where there are none
    result = run_command("bench", "turns", "--conditions", "moon", folder=tmp_path)
    assert result.returncode == 1 and "there is no condition 'moon'" in result.stderr
