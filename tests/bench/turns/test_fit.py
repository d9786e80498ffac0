"""The fit of the end of a turn: what it learns, from whom, and what it writes."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.observations import SEEN

from rejoinder.agent.bench.turns import store as turn_store
from rejoinder.agent.bench.turns.fit import (
    SHIPPED_FIT,
    Heard,
    can_be_fitted,
    check,
    cross_validated,
    fit,
    folds,
    fused,
    fused_waits,
    logistic,
)
from rejoinder.agent.bench.turns.report import fits_for, summary
from rejoinder.agent.bench.turns.rules import curve, end_of_turn, latest_answer
from rejoinder.models.turn.head import load_head
from rejoinder.pipeline.errors import PipelineError
from rejoinder.pipeline.options import Endpointing
from rejoinder.pipeline.turns import turn_end

NOTHING = np.zeros(0, np.float32)
DRAW = np.random.default_rng(0)


def test_the_regression_finds_the_odds_that_made_the_data() -> None:
    x = DRAW.normal(0, 1, (20_000, 2)) * [1.0, 5.0] + [0.0, 3.0]
    odds = 0.5 + 2.0 * x[:, 0] - 0.3 * x[:, 1]
    y = (DRAW.random(len(x)) < 1 / (1 + np.exp(-odds))).astype(float)
    assert logistic(x, y, 1.0) == pytest.approx([0.5, 2.0, -0.3], abs=0.1)


def test_without_scikit_learn_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rejoinder.agent.bench.turns.fit.find_spec", lambda module: None)
    with pytest.raises(PipelineError, match=r"needs scikit-learn; run: .*bench"):
        check()


def test_folds_share_no_speaker_and_cover_all_speakers() -> None:
    found = folds([each.speaker for each in SEEN], 4)
    assert sorted(place for _, part in found for place in part) == list(range(len(SEEN)))
    for rest, part in found:
        assert not {SEEN[place].speaker for place in rest} & {SEEN[place].speaker for place in part}


def test_fitted_rule_separates_ends_from_pauses_of_other_speakers() -> None:
    fits = cross_validated(SEEN)
    assert len({id(one) for one in fits}) == 2
    by_odds = fused_waits(SEEN, fits)
    points = curve(SEEN, lambda odds: lambda each, known: max(by_odds(each, known, odds), 150.0), (0.02, 5.0))
    assert points[1].cut_off == 0.0 and points[1].p50 < 300
    assert summary(points)["median_ms_at_5pct"] == points[1].p50
    assert curve(SEEN, latest_answer, (1.0,))[0].cut_off == 1.0
    made = fit(SEEN)
    assert set(made.tables) == set(turn_end.SHIPPED)
    assert set(made.tables["both"]) == set(turn_end.SHIPPED["both"])
    assert all(weight > 0 for name, weight in made.tables["both"].items() if name in ("mean", "recogniser"))
    heard, other = (made.heard(each) for each in SEEN[:2])
    assert heard.end_probability is not None and heard.end_probability > 0.5
    assert other.end_probability is not None and other.end_probability < 0.5


def test_the_rule_of_the_bench_is_that_of_the_floor() -> None:
    one = replace(SEEN[0], sounds=(), ending=NOTHING, over=None, judged=((150.0, 0.8), (300.0, 0.4)))
    for patience, over in ((1.0, None), (5.0, None), (30.0, 0.7), (4.0, 0.7), (4.0, 0.1)):
        one = replace(one, over=over)
        rule = fused([one], [SHIPPED_FIT], Endpointing(patience=patience))
        judged = ([0.8], [0.8, 0.4])
        pauses = [turn_end.PauseEvidence(known, one.text, end_probability=over) for known in judged]
        waits = [turn_end.wait_ms(pause, patience, 800.0) for pause in pauses]
        assert [rule(one, 1), rule(one, 2)] == [min(max(ms, 150.0), 2200.0) for ms in waits]
    silent = replace(one, text="")
    assert fused([silent], [SHIPPED_FIT], Endpointing())(silent, 2) == 2200.0
    assert end_of_turn(one, fused([one], [SHIPPED_FIT], Endpointing(patience=1.0))) >= 200


def test_few_speakers_are_judged_by_what_is_shipped() -> None:
    assert can_be_fitted(SEEN) and not can_be_fitted(SEEN[:2])
    assert fits_for(SEEN[:2]) == [SHIPPED_FIT, SHIPPED_FIT]


def test_written_weights_are_read_back(tmp_path: Path) -> None:
    for folder in ("pipeline/turns", "models/stt", "models/turn"):
        (tmp_path / folder).mkdir(parents=True)
    made = fit(SEEN)
    made.write(tmp_path)
    tables = turn_end.load(tmp_path / "pipeline/turns/turn_end.json")
    assert {name: pytest.approx(dict(table), abs=0.001) for name, table in made.tables.items()} == tables
    for head, name, sound in (
        (made.head, "turn/smart_turn.json", SEEN[0].sounds[0]),
        (made.ending, "stt/whisper_end.tiny.en.json", SEEN[0].ending),
    ):
        assert head is not None
        again = load_head(tmp_path / "models" / name)
        assert again.probability(sound) == pytest.approx(head.probability(sound), abs=0.01)


def test_other_weights_stay_unchanged(tmp_path: Path) -> None:
    for folder in ("pipeline/turns", "models/stt", "models/turn"):
        (tmp_path / folder).mkdir(parents=True)
    fit([replace(each, ending=NOTHING, over=None, whisper="") for each in SEEN]).write(tmp_path)
    assert not list(tmp_path.rglob("*.json"))
    fit([replace(each, sounds=()) for each in SEEN]).write(tmp_path)
    tables = turn_end.load(tmp_path / "pipeline/turns/turn_end.json")
    assert all(tables[name] != turn_end.SHIPPED[name] for name in ("both", "neither"))
    assert [path.name for path in (tmp_path / "models").rglob("*.json")] == ["whisper_end.tiny.en.json"]


def test_of_another_whisper_its_own_layer_is_fitted_and_nothing_else(tmp_path: Path) -> None:
    for folder in ("pipeline/turns", "models/stt", "models/turn"):
        (tmp_path / folder).mkdir(parents=True)
    seen = [replace(each, whisper="base") for each in SEEN]
    made = fit(seen)
    assert made.tables is turn_end.SHIPPED and made.ending is not None
    heard = made.heard(seen[0])
    assert heard.end_probability == made.ending.probability(seen[0].ending) and heard.end_probability > 0.5
    made.write(tmp_path)
    assert [path.name for path in tmp_path.rglob("*.json")] == ["whisper_end.base.json"]


def test_observations_are_kept_whole(tmp_path: Path) -> None:
    turn_store.write(tmp_path / "seen.json.gz", SEEN)
    again = turn_store.read(tmp_path / "seen.json.gz")
    assert list(map(turn_store.row_of, again)) == list(map(turn_store.row_of, SEEN))
    assert np.allclose(again[0].sounds, SEEN[0].sounds, atol=0.001)
    assert np.allclose(again[0].ending, SEEN[0].ending, atol=0.001)
    json.dumps(turn_store.row_of(SEEN[0]))


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b"none", b'{"sounds": [], "judged": []}'], ids=str)
@pytest.mark.parametrize("packed", [True, False])
def test_files_that_keep_did_not_write_are_refused(tmp_path: Path, data: bytes, packed: bool) -> None:
    path = tmp_path / "kept.json.gz"
    path.write_bytes(gzip.compress(data) if packed else data)
    with pytest.raises(PipelineError, match="is not what --keep writes"):
        turn_store.read(path)


def test_half_a_file_is_refused_and_a_folder_is_no_file(tmp_path: Path) -> None:
    path = tmp_path / "seen.json.gz"
    turn_store.write(path, SEEN)
    path.write_bytes(path.read_bytes()[:-2000])
    for each in (path, tmp_path):
        with pytest.raises(PipelineError, match="is not what --keep writes"):
            turn_store.read(each)
    turn_store.check(path)
    for each in (tmp_path, tmp_path / "no" / "file"):
        with pytest.raises(PipelineError, match=r"cannot write .*: it is a folder"):
            turn_store.check(each)


def test_without_sounds_the_answers_are_taken_as_they_are() -> None:
    plain = [replace(each, sounds=(), ending=NOTHING, whisper="") for each in SEEN]
    made = fit(plain)
    assert made.head is None and made.ending is None
    assert made.heard(plain[0]) == Heard((0.7, 0.7, 0.7), 0.5)
