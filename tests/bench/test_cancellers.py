"""The comparison of echo cancellers: the calls it makes, and the inputs of each canceller."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support import speech
from support.echoes import babble
from typer.testing import CliRunner

from rejoinder.agent.bench import cancellers
from rejoinder.agent.bench.aec3 import Aec3Path
from rejoinder.agent.bench.callers.room import Room
from rejoinder.agent.bench.cancellers import CANCELLERS, NO_ECHO, Cancelled, cancel, table
from rejoinder.agent.bench.cases.recordings import speech_folder
from rejoinder.agent.bench.echo import Place
from rejoinder.agent.cli.bench import app as bench
from rejoinder.pipeline.audio.chunk import RATE
from rejoinder.pipeline.audio.echo_path import ECHO_BLOCK
from rejoinder.pipeline.errors import PipelineError


def test_aec3_is_late_and_removes_echo() -> None:
    pytest.importorskip("livekit", reason="needs the extra bench")
    said = babble(2.0)
    path = Aec3Path()
    path.play(np.zeros(ECHO_BLOCK, np.float32))
    assert not path.hear(said[:ECHO_BLOCK])[0][: RATE * 8 // 1000].any()
    played = babble(8.0)
    echo = 0.5 * np.roll(played, RATE // 10)
    echo[: RATE // 10] = 0.0
    left = cancel(Aec3Path, played, echo)[4 * RATE :]
    assert np.mean(left**2) < 0.01 * np.mean(echo[4 * RATE :] ** 2)


def test_without_livekit_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rejoinder.agent.bench.aec3.find_spec", lambda module: None)
    with pytest.raises(PipelineError, match=r"AEC3 needs livekit; run: .*bench"):
        Aec3Path()


def test_a_call_has_an_echo_and_a_caller_with_a_transcript() -> None:
    for name in (cancellers.AGENT_SET, cancellers.CALLER_SET):
        speech.recordings(name)
    room = Room(np.ones(1, np.float32), -6.0, 0.2)
    place = Place("a room", -6.0, room)
    (script,) = cancellers.scripts(speech_folder(), [place, Place("music")], 1.0, 0)
    assert (
        len(script.played) == cancellers.LEAST_CALL_SECONDS * RATE == len(script.echo) == len(script.caller)
    )
    late = RATE // 5
    assert np.corrcoef(script.played[:-late], script.echo[late:])[0, 1] > 0.99
    assert script.said and all(each.text for each in script.said)
    assert script.caller[script.said[0].begin : script.said[0].end].any()


def test_the_table_has_a_row_for_each_level() -> None:
    found = [
        Cancelled(name, "room", level, 10.0, 20.0, 1, 60.0, (("a b", "a b"),), (96.0, None), 1.0)
        for name in CANCELLERS
        for level in (0.0, -6.0)
    ]
    assert table(found).row_count == 3 * len(CANCELLERS)
    assert NO_ECHO in CANCELLERS


@pytest.mark.weights
def test_the_command_reports_every_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("livekit", reason="needs the extra bench")
    for name in (cancellers.AGENT_SET, cancellers.CALLER_SET):
        speech.recordings(name, 1)
    speech.model("whisper:tiny.en").close()
    place = Place("a room", -6.0, Room(np.ones(1, np.float32), -6.0, 0.2))
    monkeypatch.setattr("rejoinder.agent.bench.echo.places", lambda folder, seed: [place])
    report = tmp_path / "report.json"
    arguments = ["echo", "--cancellers", "--minutes", "0.1", "--json", str(report)]
    done = CliRunner().invoke(bench.app, arguments)
    assert done.exit_code == 0, done.output
    calls = json.loads(report.read_text())["calls"]
    assert [call["canceller"] for call in calls] == list(CANCELLERS)
