"""Sessions that are connected to several real servers, few of them and for seconds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rejoinder.agent.bench.callers.connected import Connected, connected_report
from rejoinder.agent.cli.bench import app as bench

pytestmark = pytest.mark.server


def test_sessions_of_two_servers_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "sessions.json"
    flags = ["--processes", "2", "--connected", "40", "--sending", "4", "--seconds", "2", "--json", str(path)]
    result = CliRunner().invoke(bench.app, ["sessions", *flags])
    assert result.exit_code == 0, result.output
    assert "Sessions of 2 servers" in result.output
    silent, sending = json.loads(path.read_text())["levels"]
    assert (silent["sessions"], silent["is_sending"]) == (40, False)
    assert (sending["sessions"], sending["is_sending"]) == (4, True)
    assert sending["client_cores"] > 0 and silent["session_bytes"] > 0


def test_a_lag_above_the_last_bucket_misses_the_aim() -> None:
    levels = [Connected(2000, False, 1.0, lag, 1.0, 0.1, 1e5) for lag in (10.0, 20.0, None)]
    assert [one["reaches_aim"] for one in connected_report(levels)] == [True, False, False]
