"""Recordings for benches: which are taken, and where speech ends in them."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from rejoinder.agent.bench.cases import recordings
from rejoinder.agent.bench.cases.recordings import (
    DEFAULT_SETS,
    Recording,
    RecordingsMissing,
    background,
    choose,
    read_set,
    sample,
    speech_end,
    speech_folder,
)
from rejoinder.pipeline.audio.chunk import Samples

RATE = 16_000


def noise(seconds: float, level: float, seed: int = 0) -> Samples:
    return np.random.default_rng(seed).normal(0, level, int(seconds * RATE)).astype(np.float32)


def test_speech_ends_before_silence_clicks_and_breath() -> None:
    speech, floor = noise(1.0, 0.1), noise(1.0, 0.0005)
    audio = np.concatenate((floor, speech, floor))
    audio[int(2.6 * RATE) : int(2.62 * RATE)] = 0.5  # a click of 20 ms
    audio[int(2.3 * RATE) : int(2.5 * RATE)] += noise(0.2, 0.002, 1)  # breath, 34 dB below the speech
    assert speech_end(audio, RATE) / RATE == pytest.approx(2.0, abs=0.011)


def test_a_final_consonant_after_its_closure_is_speech() -> None:
    audio = np.concatenate((noise(1.0, 0.1), noise(0.1, 0.0005), noise(0.03, 0.03), noise(0.5, 0.0005)))
    assert speech_end(audio, RATE) / RATE == pytest.approx(1.13, abs=0.011)


def test_a_last_word_dies_away_and_a_breath_after_a_dip_is_no_word() -> None:
    dying = [noise(0.05, 0.1 * 10 ** (-decibels / 20)) for decibels in (10, 16, 21, 23)]
    audio = np.concatenate(
        (noise(1.0, 0.1), *dying, noise(0.15, 0.0005), noise(0.3, 0.008), noise(0.1, 0.0005))
    )
    assert speech_end(audio, RATE) / RATE == pytest.approx(1.2, abs=0.011)
    loud_breath = np.concatenate((noise(1.0, 0.1), noise(0.3, 0.0005), noise(0.3, 0.02)))
    assert speech_end(loud_breath, RATE) / RATE == pytest.approx(1.0, abs=0.011)
    word = np.concatenate((noise(1.0, 0.1), noise(0.3, 0.0005), noise(0.3, 0.05)))
    assert speech_end(word, RATE) / RATE == pytest.approx(1.6, abs=0.011)


def test_a_known_recording_ends_before_the_breath_after_its_last_word() -> None:
    try:
        [jfk] = [one for one in read_set(speech_folder(), "read_misc") if one.path.stem == "jfk"]
    except (RecordingsMissing, ValueError) as error:
        pytest.skip(str(error))
    assert 10.2 < speech_end(jfk.load(RATE), RATE) / RATE < 10.5


@given(st.integers(0, 40), st.floats(0.001, 0.9), st.sampled_from([8000, 16_000, 24_000, 48_000]))
def test_some_end_is_found_in_anything(tenths: int, level: float, rate: int) -> None:
    audio = np.full(tenths * rate // 10, level, np.float32)
    assert 0 <= speech_end(audio, rate) <= len(audio)


@pytest.mark.parametrize("level", [0.0, 0.001, 0.01])
def test_the_background_is_as_loud_as_the_recordings_quiet_parts(level: float) -> None:
    made = background(np.concatenate((noise(1.0, 0.1), noise(1.0, level))), RATE, 3.0)
    assert len(made) == 3 * RATE and made.dtype == np.float32
    loudness = float(np.sqrt(np.mean(made**2)))
    assert 0.7 * level <= loudness <= 1.1 * level
    assert np.array_equal(made, background(np.concatenate((noise(1.0, 0.1), noise(1.0, level))), RATE, 3.0))


def recording_by(set_: str, speaker: str, number: int, seconds: float = 3.0) -> Recording:
    return Recording(set_, Path(f"{set_}-{speaker}-{number}.flac"), speaker, None, seconds)


SETS = [
    [recording_by("big", f"s{speaker}", number) for speaker in range(5) for number in range(4)],
    [recording_by("small", f"t{speaker}", number) for speaker in range(2) for number in range(2)],
]


def test_a_sample_is_balanced_over_sets_and_speakers() -> None:
    taken = sample(SETS, 8)
    assert Counter(one.set for one in taken) == {"big": 4, "small": 4}
    assert max(Counter(one.speaker for one in taken if one.set == "big").values()) == 1
    assert set(Counter(one.speaker for one in taken if one.set == "small").values()) == {2}


def test_a_sample_is_repeatable_and_grows() -> None:
    assert sample(SETS, 12, seed=3) == sample(SETS, 12, seed=3)
    assert sample(SETS, 12, seed=3)[:5] == sample(SETS, 5, seed=3)
    assert sample(SETS, 12, seed=3) != sample(SETS, 12, seed=4)
    assert len(sample(SETS, 1000)) == 24
    assert len(set(sample(SETS, 1000))) == 24


def test_monologues_are_not_sampled() -> None:
    assert sample([[recording_by("a", "s", 0, 31.0), recording_by("a", "s", 1, 3.0)]], 5) == [
        recording_by("a", "s", 1, 3.0)
    ]


def test_a_manifest_is_read_and_its_audio_loaded_at_any_rate(tmp_path: Path) -> None:
    (tmp_path / "toy").mkdir()
    stereo = np.stack((noise(0.5, 0.1), noise(0.5, 0.1, 1)), axis=1)
    soundfile.write(tmp_path / "toy" / "a.flac", stereo, RATE)
    row = {"file": "a.flac", "text": None, "speaker": "me", "duration_s": 0.5, "source": "here"}
    (tmp_path / "toy" / "manifest.jsonl").write_text(json.dumps(row) + "\n")
    [recording] = read_set(tmp_path, "toy")
    assert recording == Recording("toy", tmp_path / "toy" / "a.flac", "me", None, 0.5)
    assert len(recording.load(24_000)) == 12_000
    assert recording.load(24_000).dtype == np.float32


def test_an_empty_set_and_one_of_monologues_are_reported(tmp_path: Path) -> None:
    rows = {"empty": [], "long": [{"file": "a", "speaker": "b", "duration_s": 60.0}]}
    rows["good"] = [{"file": f"{number}", "speaker": "b", "duration_s": 2.0} for number in range(3)]
    for name, lines in rows.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "manifest.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert len(choose(tmp_path, ["good"], 2)) == 2
    assert len(choose(tmp_path, ["good"], 20)) == 3
    with pytest.raises(RecordingsMissing, match=r"^the set 'empty' in .* has no recordings at all"):
        choose(tmp_path, ["good", "empty"], 2)
    with pytest.raises(RecordingsMissing, match=r"^the set 'long' in .* has no recordings of up to 15 s"):
        choose(tmp_path, ["long"], 2)
    with pytest.raises(RecordingsMissing, match=r"^there is no set 'bad': .* are: empty, good, long"):
        choose(tmp_path, ["bad"], 2)


def test_missing_recordings_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(recordings.VARIABLE, str(tmp_path / "nowhere"))
    with pytest.raises(RecordingsMissing, match="nowhere"):
        speech_folder()
    assert speech_folder(tmp_path) == tmp_path.resolve()
    with pytest.raises(RecordingsMissing, match=r"the sets in .* are: none"):
        read_set(tmp_path, "toy")
    with pytest.raises(RecordingsMissing, match="cannot read"):
        recording_by("a", "s", 0).load(RATE)


def test_real_speech_ends_within_its_recording_and_where_it_should() -> None:
    try:
        folder = speech_folder()
        chosen = sample([read_set(folder, name) for name in DEFAULT_SETS], 30)
    except RecordingsMissing as error:
        pytest.skip(str(error))
    for recording in chosen:
        audio = recording.load(RATE)
        end = speech_end(audio, RATE)
        assert 0.2 * RATE < end <= len(audio), recording.path.name
        after = audio[end:]
        loud = np.sqrt(np.mean(audio[:end] ** 2))
        if len(after) > RATE // 10:
            assert np.sqrt(np.mean(after**2)) < loud / 3, recording.path.name
