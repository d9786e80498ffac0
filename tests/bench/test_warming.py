"""How a prompt that was sent ahead is measured."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from rejoinder.agent.bench.prefix_cache.warming import PARTIAL, WHOLE, measure_warming, summary
from rejoinder.agent.cli.app import app
from rejoinder.pipeline import Message, ModelError


class Remembering:
    """A language model that takes longer for a prompt that it does not know the beginning of."""

    def __init__(self, words: str = "Nine.") -> None:
        self.known: set[str] = set()
        self.asked: list[bool] = []
        self.words = words

    async def warm(self, messages: Sequence[Message]) -> None:
        assert messages[1]["content"] == PARTIAL
        self.known.add(messages[0]["content"])

    async def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        assert messages[1]["content"] == WHOLE and len(messages[0]["content"].split()) == 30
        self.asked.append(messages[0]["content"] in self.known)
        await asyncio.sleep(0.0 if self.asked[-1] else 0.02)
        for word in self.words.split():
            yield word


def test_each_round_asks_with_and_without_in_turn() -> None:
    llm = Remembering()
    times = asyncio.run(measure_warming(llm, 4, 30, 0))
    assert llm.asked == [False, True, True, False, False, True, True, False] or llm.asked == [
        True, False, False, True, True, False, False, True,
    ]  # fmt: skip
    assert len(times) == 4 and all(one.cold >= 0.02 for one in times)
    found = summary(times)
    assert found["ratio"] == found["warmed_s"] / found["cold_s"] < 1.0


def test_an_answer_without_words_is_an_error() -> None:
    with pytest.raises(ModelError, match="has no words"):
        asyncio.run(measure_warming(Remembering(""), 1, 30, 0))


def test_the_command_reports_the_medians(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    ran = CliRunner().invoke(
        app, ["bench", "warming", "--llm", "scripted:llm|Nine.", "--rounds", "2", "--json", str(file)]
    )
    assert ran.exit_code == 0 and "(medians of 2)" in ran.output
    report = json.loads(file.read_text())
    assert len(report["times"]) == 2 and report["cold_s"] > 0.05 and report["words"] == 900
