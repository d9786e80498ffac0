"""eot-bench's measure: all settings swept together, the mean wait, and intervals over speakers."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from support.observations import SEEN

from rejoinder.agent.bench.turns import comparison
from rejoinder.agent.bench.turns.budgets import BUDGETS, Budget, best, results
from rejoinder.agent.bench.turns.fit import SHIPPED_FIT, fused, fused_waits
from rejoinder.agent.bench.turns.held_out import chosen_elsewhere, held_out
from rejoinder.agent.bench.turns.rules import Observation, cuts_off, end_of_turn
from rejoinder.agent.bench.turns.sweep import (
    LEAST_MS,
    MOST_MS,
    SWEPT_PATIENCES,
    Setting,
    Sweep,
    silence_sweep,
    sweep,
)
from rejoinder.pipeline.options import Endpointing

HOLD = Observation("s", "f", "ann", True, 50.0, ((250.0, 0.9), (400.0, 0.1)), "and then", 130.0, 600.0)
END = replace(HOLD, judged=((250.0, 0.2), (400.0, 1.0)), text="that is all", resumes=None)
UNNOTICED = replace(HOLD, pause=210.0, judged=(), text="", text_at=210.0, resumes=210.0)


def cut_and_waited(found: Sweep, place: int) -> tuple[float, float]:
    return float(found.cut[place].sum()), float(found.waited[place].sum())


def test_every_setting_is_judged_as_the_rule_of_a_session_is() -> None:
    seen = [replace(each, speaker=f"who{at}") for at, each in enumerate((HOLD, END, UNNOTICED, *SEEN[:6]))]
    fits = [SHIPPED_FIT] * len(seen)
    found, options = sweep(seen, fused_waits(seen, fits)), Endpointing()
    same = [one for one in found.settings if one.min_wait_ms == options.min_wait_ms]
    same = [one for one in same if one.max_wait_ms == options.max_wait_ms]
    assert [one.patience for one in same] == list(SWEPT_PATIENCES)
    for setting in same:
        # The sweep has three knobs: here an unsure end waits as long as any.
        session = replace(options, patience=setting.patience, unsure_wait_ms=options.max_wait_ms)
        rule, place = fused(seen, fits, session), found.settings.index(setting)
        cut = sum(cuts_off(each, rule) for each in seen)
        waited = sum(end_of_turn(each, rule) for each in seen if each.resumes is None)
        assert cut_and_waited(found, place) == (cut, pytest.approx(waited))
    limits = sum(least <= most for least in LEAST_MS for most in MOST_MS)
    assert len(found.settings) == len(SWEPT_PATIENCES) * limits


def test_silence_alone_waits_from_the_noticed_pause() -> None:
    found = silence_sweep([HOLD, END])
    by_silence = {one.max_wait_ms: cut_and_waited(found, at) for at, one in enumerate(found.settings)}
    assert by_silence[500] == (1.0, 550.0) and by_silence[550] == (0.0, 600.0)


def test_a_pause_that_is_not_noticed_is_never_cut_off() -> None:
    found = sweep([UNNOTICED, END], fused_waits([UNNOTICED, END], [SHIPPED_FIT] * 2))
    assert not found.cut.any() and found.holds.sum() == 1


def test_the_best_setting_keeps_to_its_budget() -> None:
    cut, mean = np.array([0.5, 0.2, 0.05]), np.array([200.0, 300.0, 900.0])
    assert best(cut, mean, Budget(mean_ms=300.0)) == 1
    assert best(cut, mean, Budget(mean_ms=100.0)) is None
    assert best(cut, mean, Budget(cut_off=0.3)) == 1
    assert best(cut, mean, Budget(cut_off=0.05)) == 2
    assert best(cut, mean, Budget(cut_off=0.01)) is None
    unknown = np.array([np.nan, np.nan, np.nan])  # a resample without pauses
    assert best(unknown, mean, Budget(mean_ms=300.0)) is None


def test_a_missed_end_counts_with_the_longest_wait() -> None:
    # Nine ends at once and one that is heard as no end: the median hides it, the mean does not.
    ends = [replace(END, speaker=f"who{at}", judged=((100.0, 0.95),), text="that is all.") for at in range(9)]
    missed = replace(END, speaker="who9", judged=((100.0, 0.01),), text="and the")
    found = sweep([*ends, missed, HOLD], fused_waits([*ends, missed, HOLD], [SHIPPED_FIT] * 11))
    place = next(
        at
        for at, one in enumerate(found.settings)
        if (one.patience, one.min_wait_ms, one.max_wait_ms) == (4.0, 150, 3000)
    )
    assert found.waited[place].max() == 50 + 3000
    assert np.median(found.waited[place][1:]) < 400


def swept(cut: Sequence[Sequence[float]], waited: Sequence[Sequence[float]]) -> Sweep:
    """Return a sweep with one pause and one end of each speaker; rows are settings, columns speakers."""
    settings = [Setting(float(place), 150, 2200) for place in range(len(cut))]
    ones = np.ones(len(cut[0]))
    speakers = [f"who{place}" for place in range(len(ones))]
    return Sweep(settings, speakers, np.array(cut, float), np.array(waited, float), ones, ones)


@pytest.mark.parametrize("speakers", [24, 96])
def test_intervals_are_those_of_a_share_among_as_many_speakers(speakers: int) -> None:
    """Of a share of a half, a normal 90 % interval is 1.645 standard errors wide on each side."""
    found = next(results(swept([[1.0, 0.0] * (speakers // 2)], [[100.0] * speakers])))
    assert found and found.cut_off == 0.5
    error = 1.645 * 0.5 / np.sqrt(speakers)
    assert (0.5 - found.low, found.high - 0.5) == pytest.approx((error, error), rel=0.15)
    alone = next(results(swept([[1.0]], [[100.0]])))
    assert alone and alone.low == alone.high == 1.0, "one speaker says nothing about others"


def test_a_setting_chosen_on_other_speakers_may_miss_its_budget() -> None:
    quick, slow = [0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 0.0, 0.0]
    first = swept([quick[:2], slow[:2]], [[100.0] * 2, [900.0] * 2])
    second = swept([quick[2:], slow[2:]], [[100.0] * 2, [900.0] * 2])
    budget = Budget(cut_off=0.1)
    # On the first half the quick setting cuts nobody off, so it judges the second, where it always does.
    assert chosen_elsewhere([(second, first), (first, second)], budget) == (0.5, 500.0)
    assert chosen_elsewhere([(first, first), (second, second)], budget) == (0.0, 500.0)
    assert chosen_elsewhere([(first, second), (swept([[1.0]], [[1.0]]), first)], budget) is None


def test_settings_are_chosen_for_each_budget() -> None:
    seen = [replace(each, speaker=f"who{at // 2}") for at, each in enumerate(SEEN * 2)]
    found = held_out(seen)
    assert len(found) == len(BUDGETS) and all(found)
    assert all(0.0 <= cut <= 1.0 and 100.0 <= mean <= 3100.0 for cut, mean in filter(None, found))
    assert held_out(SEEN[:4]) == [None] * len(BUDGETS)


def test_the_summary_has_a_key_for_each_budget() -> None:
    compared = comparison.compare(SEEN, [SHIPPED_FIT] * len(SEEN))
    assert list(comparison.summary(compared)) == list(comparison.FIGURE_KEYS)
    assert set(compared.rows) == {"all pauses", "pauses put in", "silence alone"}
    assert len(comparison.table(compared).columns) == 1 + len(BUDGETS)
    json.dumps(comparison.report(compared), allow_nan=False)
