"""The bench of background speakers: its scenes, what it counts, and its figures."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest
import soundfile
from support.echoes import babble

from rejoinder.agent.bench.speakers.listening import VoiceOutcome, listen, windows_of
from rejoinder.agent.bench.speakers.report import rows, summary, table
from rejoinder.agent.bench.speakers.scenes import RESPONSES, Scene, VoicePlace, scenes
from rejoinder.agent.bench.speakers.voices import (
    CALLER_DBFS,
    MEETINGS,
    SPEAKER_PAIRS,
    Speaker,
    Voices,
    far,
    muffled,
    speech_dbfs,
)
from rejoinder.models.scripted import ScriptedVad
from rejoinder.pipeline.audio.chunk import RATE, Samples
from rejoinder.pipeline.options import Speakers


def said(seed: int) -> Samples:
    return babble(2.0, seed=seed)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[Scene]:
    """Scenes of three callers, with a room without an echo."""
    folder = tmp_path_factory.mktemp("speech")
    (folder / RESPONSES).mkdir()
    soundfile.write(folder / RESPONSES / "room.wav", np.eye(1, 800)[0], RATE)
    row = '{"file": "room.wav", "text": null, "speaker": "", "duration_s": 0.05}'
    (folder / RESPONSES / "manifest.jsonl").write_text(row)
    speakers = [Speaker(str(place), [said(2 * place), said(2 * place + 1)]) for place in range(3)]
    sounds = {MEETINGS: [babble(12.0, seed=7)], SPEAKER_PAIRS: [babble(4.0, seed=8)]}
    return list(scenes(Voices(speakers, sounds), Path(folder), 1))


def scene(made: list[Scene], kind: str, place: VoicePlace) -> Scene:
    return next(each for each in made if each.kind == kind and each.place is place)


def quieter(one: Scene, share: float) -> Scene:
    """Return the scene with a quieter voice, and all of it so loud that the scripted detector notices it."""
    audio = np.clip(4.0 * one.audio, -1.0, 1.0)
    audio[one.begin : one.end] *= share
    return Scene(one.kind, one.place, audio, one.begin, one.end, one.is_caller)


def outcome(one: Scene, speakers: Speakers) -> VoiceOutcome:
    return asyncio.run(listen(one, windows_of(one, ScriptedVad()), speakers))


def test_the_voice_has_its_level(made: list[Scene]) -> None:
    one = scene(made, "voice, 10 dB below", VoicePlace.FREE)
    assert speech_dbfs(one.audio[one.begin : one.end]) == pytest.approx(CALLER_DBFS - 10, abs=1.0)
    assert speech_dbfs(one.audio[: one.begin]) == pytest.approx(CALLER_DBFS, abs=1.0)


def test_a_muffled_voice_has_no_high_sounds() -> None:
    voice = np.random.default_rng(0).normal(0.0, 0.1, RATE).astype(np.float32)
    power = np.abs(np.fft.rfft(muffled(voice))) ** 2 / np.abs(np.fft.rfft(voice)) ** 2
    assert power[100] > 0.9
    assert power[5600] < 1e-3


def test_a_far_voice_has_the_same_level() -> None:
    room = np.zeros(RATE // 4, np.float32)
    room[::400] = np.linspace(1.0, 0.0, len(room[::400]))
    assert speech_dbfs(far(said(1), room)) == pytest.approx(speech_dbfs(said(1)), abs=0.1)


@pytest.mark.parametrize("place", [VoicePlace.OVER_AGENT, VoicePlace.FREE])
def test_a_voice_in_the_background_counts_where_all_do(made: list[Scene], place: VoicePlace) -> None:
    quiet = quieter(scene(made, "voice, 5 dB below", place), 0.25)
    assert outcome(quiet, "many").took
    assert not outcome(quiet, "one").took
    assert outcome(scene(made, "caller, 0 dB quieter", place), "one").took


def test_a_voice_after_the_caller_keeps_the_floor_where_all_count(made: list[Scene]) -> None:
    quiet = quieter(scene(made, "voice, 0 dB below", VoicePlace.AFTER_CALLER), 0.15)
    many, alone = outcome(quiet, "many"), outcome(quiet, "one")
    assert many.ended_ms is not None and alone.ended_ms is not None
    assert alone.ended_ms < many.ended_ms


def test_the_figures_are_shares_of_what_counts_where_all_do() -> None:
    def pair(kind: str, own: bool, many: bool, one: bool) -> tuple[VoiceOutcome, VoiceOutcome]:
        made = [
            VoiceOutcome(kind, VoicePlace.FREE, own, took, 100.0 if took else None, None)
            for took in (many, one)
        ]
        return made[0], made[1]

    found = rows(
        [
            pair("meeting, 15 dB below", False, True, False),
            pair("meeting, 15 dB below", False, True, True),
            pair("meeting, 15 dB below", False, False, False),
            pair("caller, 0 dB quieter", True, True, True),
        ]
    )
    assert [(row.kind, row.count, row.every, row.caller) for row in found] == [
        ("meeting, 15 dB below", 3, 2, 1),
        ("caller, 0 dB quieter", 1, 1, 1),
    ]
    assert summary(found) == {
        "kept_out_15_db": 0.5,
        "lost_same_level": 0.0,
        "lost_6_db_quieter": None,
        "lost_10_db_quieter": None,
    }
    assert table(found).row_count == 4
