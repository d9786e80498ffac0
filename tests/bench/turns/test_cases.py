"""The endpointing benchmark: cases whose truth is known, and rules judged on what was observed."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support import speech
from support.paths import ROOT
from support.serving import run_command

from rejoinder.agent.bench.turns.cases import AFTER_END_SECONDS, LEAST_SPEECH_SECONDS, cases
from rejoinder.agent.bench.turns.comparison import FIGURE_KEYS
from rejoinder.agent.bench.turns.fit import folds
from rejoinder.agent.bench.turns.rules import (
    Observation,
    at_cut_off,
    at_median,
    curve,
    cuts_off,
    end_of_turn,
    judge,
    latest_answer,
    observe,
    silence_alone,
)
from rejoinder.pipeline.audio.chunk import RATE

HOLD = Observation("s", "f", "who", False, 50.0, ((250.0, 0.9), (400.0, 0.1)), "and then", 130.0, 600.0)
END = replace(HOLD, judged=((250.0, 0.2), (400.0, 1.0)), text="that is all", resumes=None)
RULE = latest_answer()


def test_a_turn_ends_when_the_rule_knows_enough() -> None:
    assert end_of_turn(END, silence_alone(300)) == 350  # counted from where the VAD heard the pause
    assert end_of_turn(END, silence_alone(10)) == 130  # not before there are words
    assert end_of_turn(HOLD, RULE) == pytest.approx(50 + 800 - 0.9 * 600)  # sure at 250, before it doubts
    assert end_of_turn(END, RULE) == 400  # unsure until 400, and then it has waited long enough
    assert end_of_turn(replace(END, judged=()), RULE) == 850


def test_only_a_speaker_who_continues_can_be_cut_off() -> None:
    assert cuts_off(HOLD, RULE) and not cuts_off(END, RULE)
    assert not cuts_off(HOLD, silence_alone(551))
    assert cuts_off(HOLD, silence_alone(549))


def test_the_curve_falls_as_patience_grows() -> None:
    seen = [HOLD, replace(HOLD, resumes=1500.0), END, replace(END, pause=60.0)]
    points = curve(seen, silence_alone, [100, 400, 700, 1600])
    assert [point.cut_off for point in points] == [1.0, 1.0, 0.5, 0.0]
    assert [point.p50 for point in points] == [155.0, 455.0, 755.0, 1655.0]
    assert at_median(points, 605.0) == pytest.approx(0.75)
    assert at_median(points, 100.0) is None
    assert at_cut_off(points, 0.5) == 755.0
    assert at_cut_off(points[:2], 0.05) is None
    point = judge("x", seen, RULE)
    assert (point.holds, point.ends) == (2, 2)


def test_cases_of_real_recordings_have_matched_lengths() -> None:
    recordings = speech.recordings("speechocean762_adult", 20)
    found = [case for recording in recordings for case in cases(recording)]
    assert found[0].audio.tolist() == cases(recordings[0])[0].audio.tolist()  # the same every time
    ends = [case for case in found if case.seconds is None]
    holds = [case for case in found if case.seconds is not None and not case.natural]
    assert len(ends) > len(holds) >= 10
    assert all(len(case.audio) == case.at + AFTER_END_SECONDS * RATE for case in ends)
    for case in holds:
        assert case.seconds is not None and 0.3 <= case.seconds <= 2.0
        assert case.at >= LEAST_SPEECH_SECONDS * RATE
        pause = case.audio[case.at : case.at + int(case.seconds * RATE)]
        assert np.abs(pause).max() < np.abs(case.audio[: case.at]).max() / 2
    paired = [case.at for case in ends if any(case.file == hold.file for hold in holds)][1::2]
    assert abs(np.median(paired) - np.median([case.at for case in holds])) < RATE
    first, second = folds([case.speaker for case in found], 2)[0]
    assert len(first) + len(second) == len(found)
    assert not {found[place].speaker for place in first} & {found[place].speaker for place in second}


@pytest.mark.weights
def test_the_command_reports_every_case(tmp_path: Path) -> None:
    speech.recordings("speechocean762_adult", 1)
    speech.need("smart-turn")
    kept = str(tmp_path / "seen.json.gz")
    given = [
        "bench",
        "turns",
        "--sets",
        "speechocean762_adult",
        "--limit",
        "1",
        "--keep",
        kept,
        "--json",
        "-",
    ]
    result = run_command(*given, folder=tmp_path, COLUMNS="160")
    assert result.returncode == 0, result.stderr
    *lines, last = result.stdout.splitlines()
    assert list(json.loads(last)) == [
        "false_cutoff_at_300ms",
        "median_ms_at_5pct",
        "p95_ms_at_5pct",
        *FIGURE_KEYS,
    ]
    report = json.loads("\n".join(lines))
    again = run_command(
        "bench", "turns", "--again", kept, "--json", str(tmp_path / "x.json"), folder=tmp_path
    )
    # What is kept has three digits, and a wait follows the probability: it may differ by a thousandth.
    figures = {
        name: value if value is None else pytest.approx(value, rel=1e-3, abs=1e-3)
        for name, value in json.loads(last).items()
    }
    assert json.loads(again.stdout.splitlines()[-1]) == figures
    here = str(ROOT)
    few = run_command("bench", "turns", "--again", kept, "--fit", here, folder=tmp_path)
    assert few.returncode == 1 and "--fit needs ends and pauses of at least 20 speakers" in few.stderr
    nowhere = run_command("bench", "turns", "--again", kept, "--fit", str(tmp_path), folder=tmp_path)
    assert nowhere.returncode == 1 and "is not a checkout" in nowhere.stderr
    assert {case["resumes"] is None for case in report["cases"]} == {True, False}
    assert 0 < report["speed"]["words_known_ms"] and 64 < report["speed"]["turn_model_answers_ms"]
    assert "words known ms" in result.stderr
    for points in report["curves"].values():
        assert points[0]["cut_off"] >= points[-1]["cut_off"]
    assert "Pauses cut off" in result.stderr and "silence alone, ms:" in result.stderr


def test_recordings_without_pauses_are_reported(tmp_path: Path) -> None:
    result = run_command("bench", "turns", "--speech", str(tmp_path), folder=tmp_path)
    assert result.returncode == 1 and "there is no set" in result.stderr
    speech.recordings("an4", 1)  # skips where there are none
    result = run_command("bench", "turns", "--turn", "", "--limit", "1", folder=tmp_path)
    assert result.returncode == 1 and "a turn model is needed" in result.stderr


@pytest.mark.weights
def test_real_models_observe_a_real_end_and_a_hold() -> None:
    models = [speech.model(spec) for spec in ("silero", "whisper:tiny.en", "smart-turn")]
    found = cases(speech.recordings("speechocean762_adult", 20)[3])
    chosen = [found[0], next(case for case in found if case.seconds and not case.natural)]

    async def listen() -> list[Observation | None]:
        return [await observe(case, *models) for case in chosen]

    try:
        end, hold = asyncio.run(listen())
    finally:
        for model in models[1:]:
            model.close()
    assert end and hold
    assert end.resumes is None and hold.resumes == pytest.approx(1000 * (chosen[1].seconds or 0), abs=1)
    assert len(end.text.split()) > len(hold.text.split()) > 0
    assert -200 < end.pause < 300 and end.judged
    assert all(0 <= probability <= 1 for _, probability in (*end.judged, *hold.judged))
