"""A soak with real sockets: callers of all wires, and a kill in the middle."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rejoinder.agent.bench.cases import recordings
from rejoinder.agent.bench.soaking import running
from rejoinder.agent.bench.soaking.samples import read_journal
from rejoinder.agent.cli.bench import app as bench

SCRIPTED = ["--llm", "scripted:llm|It is a sunny day today.", "--stt", "scripted:stt|what is the weather"]
SCRIPTED += ["--tts", "scripted:tts", "--turn", "scripted:turn"]


@pytest.mark.server
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
