"""How the reuse of a KV cache is measured."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rejoinder.agent.bench.prefix_cache.reuse import measure_reuse
from rejoinder.agent.cli.app import app
from rejoinder.models.scripted import ScriptedLlm
from rejoinder.pipeline import ModelError


def test_a_model_without_statistics_is_refused() -> None:
    with pytest.raises(ModelError, match="has no statistics of its engine: models in this process have them"):
        asyncio.run(measure_reuse(ScriptedLlm()))


@pytest.mark.weights
def test_the_command_reports_each_turn(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    ran = CliRunner().invoke(app, ["bench", "reuse", "--json", str(file)])
    assert ran.exit_code == 0 and "prompt tokens were in the cache" in ran.output
    turns = json.loads(file.read_text())["turns"]
    assert [(one["call"], one["turn"]) for one in turns][-3:] == [(1, 10), (2, 1), (2, 2)]
    assert all(one["counts"]["cached_tokens"] > 60 for one in turns[1:])


def test_the_command_refuses_a_model_without_statistics() -> None:
    ran = CliRunner().invoke(app, ["bench", "reuse", "--llm", "scripted:llm|Nine."])
    assert ran.exit_code == 1 and "error: " in ran.output and "has no statistics" in ran.output
