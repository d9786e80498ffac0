"""Trends: what grows, what only varies, and what a table and a file say of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console, RenderableType
from typer.testing import CliRunner

from rejoinder.agent.bench.soaking import verdict
from rejoinder.agent.bench.soaking.registries import registries
from rejoinder.agent.bench.soaking.samples import SoakJournal, SoakSample, quantile, read_journal
from rejoinder.agent.bench.soaking.trends import trend
from rejoinder.agent.cli.bench import app as bench
from rejoinder.models.scripted import KEPT_PROMPTS, ScriptedLlm
from rejoinder.pipeline import PipelineError

NOISE = np.random.default_rng(0).normal(0.0, 1.0, 60)
HOURS = [minute / 60 for minute in range(60)]


def sample(minute: float, segment: int = 0, **changed: object) -> SoakSample:
    usual = SoakSample(60.0 * minute, segment, 100_000_000, 20, 8, 40, 4, 0.5, 1.0, 5.0, 400.0, 900.0)
    counts = {"asked": 10, "answered": 10}
    return replace(usual, **{"happened": counts, "wires": {"pcm": 3}, **changed})  # type: ignore[arg-type]


def test_a_slope_is_that_of_a_textbook() -> None:
    # The first set of Anscombe, Graphs in Statistical Analysis (1973): slope 0.500, standard error 0.118.
    x = [10.0, 8.0, 13.0, 9.0, 11.0, 14.0, 6.0, 4.0, 12.0, 7.0, 5.0]
    y = [8.04, 6.95, 7.58, 8.81, 8.33, 9.96, 7.24, 4.26, 10.84, 4.82, 5.68]
    found = trend(x, y)
    assert found and found.slope == pytest.approx(0.5001, abs=1e-4)
    assert found.error == pytest.approx(0.1179, abs=1e-4) and found.span == 10.0


def test_noise_is_no_trend_and_a_leak_in_it_is_one() -> None:
    steady = trend(HOURS, list(500.0 + NOISE))
    assert steady and not steady.grows_by_share()
    leak = trend(HOURS, list(500.0 + NOISE + 10.0 * np.array(HOURS)))
    assert leak and leak.grows_by_share() and leak.slope == pytest.approx(10.0, abs=2.0)
    small = trend(HOURS, list(500.0 + 0.01 * NOISE + 2.0 * np.array(HOURS)))
    assert small and small.is_significant and not small.grows_by_share(), "0.4 % an hour is allowed"
    assert trend(HOURS[:3], [1.0, 2.0, 3.0]) is None


def test_a_trend_whose_error_hides_growth_is_unknown() -> None:
    verdicts = []
    for spread, growth in ((0.1, 0.0), (30.0, 0.0), (0.1, 10.0)):
        values = (500.0 + spread * NOISE + growth * np.array(HOURS)) * 1e6
        samples = [sample(minute, memory=int(value)) for minute, value in enumerate(values)]
        verdicts += [one.verdict for one in verdict.judge(samples) if one.quantity == "memory"]
    assert verdicts == ["steady", "unknown", "grows"]


def test_samples_like_the_ones_before_count_for_fewer() -> None:
    walk = np.cumsum(NOISE)
    slow, quick = trend(HOURS, list(walk)), trend(HOURS, list(np.random.default_rng(1).permutation(walk)))
    assert slow and quick and slow.error > 2 * quick.error


def test_descriptors_of_running_calls_are_no_trend() -> None:
    calls = [float(minute // 15) for minute in range(60)]
    held = [10.0 + each for each in calls]
    naive, aware = trend(HOURS, held), trend(HOURS, held, calls)
    assert naive and naive.grows_by_units()
    assert aware and not aware.grows_by_units() and abs(aware.slope) < 1e-6
    leaking = trend(HOURS, [each + hour * 3.0 for each, hour in zip(held, HOURS, strict=True)], calls)
    assert leaking and leaking.grows_by_units()
    tenth = trend(HOURS, [10.0 + 0.1 * hour for hour in HOURS])
    assert tenth and tenth.is_significant and not tenth.grows_by_units(), "no whole descriptor"


def test_each_segment_is_judged_without_its_beginning() -> None:
    warm = [sample(minute, memory=int(1e8 + 1e6 * min(minute, 5))) for minute in range(30)]
    after = [sample(30 + minute, 1, descriptors=20 + minute // 2) for minute in range(30)]
    judged = verdict.judge([*warm, *after])
    assert [(one.segment, one.quantity) for one in judged if one.fails] == [(1, "descriptors")]
    (failure,) = verdict.failures([*warm, *after], judged)
    assert failure.startswith("descriptors grows by 29.77") and failure.endswith("in segment 1")
    text = _text(verdict.tables([*warm, *after], judged))
    assert text.count("100/100") >= 4 and "0–9.83" in text, "a sixth of the run each"
    assert "kill -9" in text and "…" not in text and "grows" in text and "pcm: 180" in text


def test_memory_of_a_short_segment_is_not_judged() -> None:
    before = [sample(minute, memory=int(1e8 + 1e7 * minute)) for minute in range(42)]
    after = [sample(42 + minute, 1, memory=int(1e8 + 1e7 * minute), threads=minute) for minute in range(18)]
    judged = verdict.judge([*before, *after])
    assert [(one.segment, one.quantity) for one in judged if one.fails] == [(0, "memory"), (1, "threads")]


def _text(shown: Sequence[RenderableType]) -> str:
    console = Console(width=80)
    with console.capture() as said:
        console.print(*shown)
    return said.get()


def test_a_run_in_which_no_turn_is_answered_fails() -> None:
    samples = [sample(minute, happened={"asked": 5}) for minute in range(30)]
    assert verdict.failures(samples, verdict.judge(samples)) == ["0 of 150 turns were answered in segment 0"]


def test_calls_that_never_end_fail_although_they_explain_what_they_hold() -> None:
    samples = [sample(minute, calls=4 + minute // 10, tasks=40 + 5 * (minute // 10)) for minute in range(60)]
    judged = verdict.judge(samples)
    assert [one.quantity for one in judged if one.fails] == ["calls"]


def test_a_server_that_does_not_answer_fails() -> None:
    samples = [sample(minute) for minute in range(50)]
    judged = verdict.judge(samples)
    assert verdict.failures(samples, judged, 55) == []
    (failure,) = verdict.failures(samples, judged, 60)
    assert failure == "50 of 60 samples were taken: the server did not answer, or has ended"
    few = samples[:3]
    failed = verdict.failures(few, verdict.judge(few))
    assert "memory in MB cannot be judged in segment 0: there are too few samples" in failed
    assert "0 of 0 samples" in " ".join(verdict.failures([], []))


def test_the_file_of_a_killed_run_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "out" / "soak.jsonl"
    journal = SoakJournal(path, {"hours": 1.0})
    samples = [sample(minute, lost={"pcm: gone": 1}) for minute in range(20)]
    for one in samples:
        journal.add(one)
    journal.close()
    with path.open("a") as file:
        file.write('{"at": 120')
    assert read_journal(path) == ({"hours": 1.0}, samples)
    shown = CliRunner().invoke(bench.app, ["soak", "--read", str(path), "--json", str(tmp_path / "r.json")])
    assert shown.exit_code == 0, shown.output
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["hours"] == 1.0 and report["failures"] == [] and len(report["trends"]) == 6
    path.write_text("{}")
    with pytest.raises(PipelineError, match="is not the file of a soak"):
        read_journal(path)


def test_a_quantile_is_the_bound_of_its_bucket() -> None:
    assert quantile({0.001: 50, 0.01: 99, float("inf"): 100}, 0.5) == 1.0
    assert quantile({0.001: 50, 0.01: 99, float("inf"): 100}, 0.99) == 10.0
    assert quantile({0.001: 0, float("inf"): 0}, 0.5) is None


def test_containers_are_found_wherever_a_server_holds_them() -> None:
    llm = ScriptedLlm(["one", "two"])
    llm.prompts += [[{"role": "user", "content": "hi"}]] * 3
    found = registries(verdict.Judged(0, "memory", None, False))
    assert found == {}
    assert registries(llm)["prompts"] == 3 and registries(llm)["lines"] == 2
    holder = verdict.Judged(0, "memory", llm, False)  # type: ignore[arg-type]
    assert registries(holder)["trend.prompts"] == 3


def test_a_scripted_model_keeps_its_last_prompts_only() -> None:
    async def ask() -> ScriptedLlm:
        llm = ScriptedLlm(["yes"], first=0.0, each=0.0)
        for number in range(KEPT_PROMPTS + 5):
            async for _ in llm.reply([{"role": "user", "content": str(number)}]):
                pass
        return llm

    llm = asyncio.run(ask())
    assert len(llm.prompts) == KEPT_PROMPTS and llm.prompts[-1][0]["content"] == str(KEPT_PROMPTS + 4)
