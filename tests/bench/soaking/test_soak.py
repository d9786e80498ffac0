"""A soak with real sockets: callers of all wires, a kill in the middle, and an hour of virtual time."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rejoinder.agent.bench.cases import recordings
from rejoinder.agent.bench.soaking import people, running, verdict
from rejoinder.agent.bench.soaking import virtual as bench_virtual
from rejoinder.agent.bench.soaking.samples import read_journal
from rejoinder.agent.cli.bench import app as bench
from rejoinder.agent.server.calls.book import RECENT_CALLS
from rejoinder.models.scripted import KEPT_PROMPTS

SCRIPTED = ["--llm", "scripted:llm|It is a sunny day today.", "--stt", "scripted:stt|what is the weather"]
SCRIPTED += ["--tts", "scripted:tts", "--turn", "scripted:turn"]

BOUNDED = {"_switchboard.models.llm.prompts": KEPT_PROMPTS, "book._recent": RECENT_CALLS}
"""Containers that keep the newest prompts and calls, and their bounds: short days do not fill them."""
OF_SPEED = (" grows by ", " cannot be judged in segment ", " turns were answered ", " samples were taken: ")
"""Failures of a soak of seconds that tell more of the machine than of the server."""


@pytest.mark.server
@pytest.mark.realtime
@pytest.mark.skipif(not Path("/proc/self/statm").is_file(), reason="needs Linux")
def test_a_soak_survives_its_kill_and_samples_both_segments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REJOINDER_VAD", "scripted:vad")
    monkeypatch.delenv("REJOINDER_SPEECH", raising=False)
    monkeypatch.setattr(recordings, "DEFAULT_FOLDER", tmp_path / "none")
    path = tmp_path / "soak.jsonl"
    log = path.with_suffix(".log")
    flags = [*SCRIPTED, "--hours", "0.006", "--callers", "8", "--kill", "--out", str(path)]
    _, failed = judged(flags, tmp_path / "report.json")
    assert not [one for one in failed if not any(words in one for words in OF_SPEED)]
    about, samples = read_journal(path)
    assert failed == verdict.failures(samples, verdict.judge(samples), about["samples_planned"])
    assert about["kill"] and {one.segment for one in samples} == {0, 1}
    for segment in (0, 1):
        part = [one for one in samples if one.segment == segment]
        happened = sum((Counter(one.happened) for one in part), Counter[str]())
        assert happened["answered"] > 0, happened
        assert all(one.memory > 10**7 and one.tasks > 0 and one.threads > 0 for one in part)
        assert all(one.descriptors > 5 for one in part) and any(one.p50_ms for one in part)
    assert not running.bad_lines(log)
    assert "the server is shutting down" in log.read_text()
    with log.open("a") as file:
        file.write(f"{running.BAD_SIGNS[0]}:\n")
    again = judged(["--read", str(path)], tmp_path / "again.json")
    assert again == (1, [*failed, f"the log has: {running.BAD_SIGNS[0]}:"])


def judged(flags: list[str], report: Path) -> tuple[int, list[str]]:
    """Run the command to its end; return its exit status and what failed, which the status has to fit."""
    result = CliRunner().invoke(bench.app, ["soak", *flags, "--json", str(report)])
    assert "The callers" in result.output, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit), result.output
    failed = [str(one) for one in json.loads(report.read_text())["failures"]]
    assert result.exit_code == bool(failed), result.output
    return result.exit_code, failed


def still_fills(failure: str) -> bool:
    """Return whether a failure of a short virtual soak is the growth of what fills up to a bound."""
    grown = failure.partition(" grows by ")[0]
    inside = any(f"{grown}.".startswith(f"{name}.") for name in BOUNDED)
    return inside or grown == "threads" or grown in bench_virtual.SIZES_AT_REST  # which what fills takes, too


def test_a_virtual_day_leaves_nothing_behind() -> None:
    seen: list[bench_virtual.VirtualDay] = []
    days = bench_virtual.soak_virtually(5, 6, 0, seen.append, day_s=900.0)
    assert days == seen and [one.day for one in days] == [*range(5)]
    assert not [one for one in bench_virtual.failures(days) if not still_fills(one)]
    assert len({(one.tasks, one.descriptors) for one in days[1:]}) == 1
    assert days[-1].threads <= days[1].threads + 2, "an executor may start another one"
    for held in (one.held for one in days):
        assert all(held[name] <= most for name, most in BOUNDED.items())
        assert held["calls"] == held["conversations._begun"] == held["conversations._tasks"] == 0
    wires = sum((Counter(one.wires) for one in days), Counter[str]())
    assert wires.keys() == people.VISITS.keys()
