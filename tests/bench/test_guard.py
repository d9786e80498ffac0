"""The bench of guardrails: its figures in the documentation are those of the rules."""

from __future__ import annotations

import json
import re
from pathlib import Path

from support.paths import ROOT
from typer.testing import CliRunner

from rejoinder.agent.bench.guard.costs import full_rules, measured
from rejoinder.agent.bench.guard.injections import INJECTION_HALVES, noticed
from rejoinder.agent.cli.app import app


def test_the_page_has_the_figures_of_both_halves() -> None:
    page = (ROOT / "docs" / "guides" / "guardrails.md").read_text()
    rows = re.findall(r"\| (\d+) of (\d+) \| (\d+) of (\d+) \|", page)
    found = [noticed(half) for half in INJECTION_HALVES]
    assert [tuple(map(int, row)) for row in rows] == [
        (half.attacks - len(half.missed), half.attacks, len(half.suspects), half.harmless) for half in found
    ]
    assert all((half.attacks, half.harmless) == (50, 50) for half in found)


def test_the_full_rules_let_what_the_bench_says_pass() -> None:
    cost = measured("full", full_rules(phrases=10), rounds=1)
    assert cost.clauses == 23 and 0 < cost.p50 <= cost.p95 <= cost.longest


def test_the_configured_guard_is_measured(tmp_path: Path) -> None:
    config, report = tmp_path / "own.toml", tmp_path / "report.json"
    config.write_text('[guard]\nblock = ["go to hell"]\nredact = ["phone"]')
    done = CliRunner().invoke(app, ["bench", "guard", "--config", str(config), "--json", str(report)])
    assert done.exit_code == 0, done.output
    costs = json.loads(report.read_text())["costs"]
    assert [cost["rules"] for cost in costs] == ["none", "every kind", "configured"]
