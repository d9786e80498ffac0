"""A soak with real sockets: callers of all wires, a kill in the middle, and an hour of virtual time."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rejoinder.agent.bench.cases import recordings
from rejoinder.agent.bench.soaking import people, running
from rejoinder.agent.bench.soaking import virtual as bench_virtual
from rejoinder.agent.bench.soaking.samples import read_journal
from rejoinder.agent.cli.bench import app as bench

SCRIPTED = ["--llm", "scripted:llm|It is a sunny day today.", "--stt", "scripted:stt|what is the weather"]
SCRIPTED += ["--tts", "scripted:tts", "--turn", "scripted:turn"]


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
    flags = [*SCRIPTED, "--hours", "0.006", "--callers", "8", "--kill", "--out", str(path)]
    result = CliRunner().invoke(bench.app, ["soak", *flags])
    assert "The callers" in result.output, result.output
    about, samples = read_journal(path)
    assert about["kill"] and {one.segment for one in samples} == {0, 1}
    for segment in (0, 1):
        part = [one for one in samples if one.segment == segment]
        happened = sum((Counter(one.happened) for one in part), Counter[str]())
        assert happened["answered"] > 0, happened
        assert all(one.memory > 10**7 and one.tasks > 0 and one.threads > 0 for one in part)
        assert all(one.descriptors > 5 for one in part) and any(one.p50_ms for one in part)
    assert not running.bad_lines(path.with_suffix(".log"))
    assert "the server is shutting down" in path.with_suffix(".log").read_text()


def test_a_virtual_day_leaves_nothing_behind() -> None:
    seen: list[bench_virtual.VirtualDay] = []
    days = bench_virtual.soak_virtually(5, 6, 0, seen.append, day_s=900.0)
    assert days == seen and [one.day for one in days] == [*range(5)]
    assert not [one for one in bench_virtual.failures(days) if "answered" in one or "cannot" in one]
    assert len({(one.tasks, one.descriptors) for one in days[1:]}) == 1
    for held in (one.held for one in days):
        assert held["calls"] == held["conversations._begun"] == held["conversations._tasks"] == 0
    wires = sum((Counter(one.wires) for one in days), Counter[str]())
    assert wires.keys() == people.VISITS.keys()
