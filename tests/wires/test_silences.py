"""The longest silence of an answer: without a clock, and in the trace of a simulated call."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.simulate.scenario import Talk
from rejoinder.agent.trace_file import TraceFile
from rejoinder.agent.wires.silences import Silences
from rejoinder.agent.wires.traces import Traces
from rejoinder.models.scripted import ScriptedLlm
from rejoinder.pipeline import RATE


@pytest.mark.parametrize(
    ("audio", "longest"),
    [
        ([(1.4, 1.0)], 0.4),
        ([(1.4, 1.0), (1.5, 1.0), (3.0, 1.0)], 0.4),
        ([(1.4, 1.0), (3.0, 1.0)], 0.6),
        ([], 0.0),
    ],
    ids=["first sound", "audio ahead of time", "the voice ran dry", "nothing"],
)
def test_the_longest_silence_of_an_answer(audio: list[tuple[float, float]], longest: float) -> None:
    silences = Silences()
    silences.turn_ended(1.0)
    for now, seconds in audio:
        silences.heard(now, seconds)
    assert silences.longest == pytest.approx(longest)
    assert silences.answered() == pytest.approx(longest)


def test_what_follows_a_complete_answer_or_the_callers_words_is_not_counted() -> None:
    silences = Silences()
    silences.heard(5.0, 1.0)
    assert silences.answered() == 0.0, "a greeting answers nothing"
    silences.turn_ended(10.0)
    silences.heard(10.5, 1.0)
    assert silences.answered() == pytest.approx(0.5)
    silences.heard(60.0, 1.0)
    assert silences.answered() == 0.0, "the caller said nothing for long"
    silences.turn_ended(70.0)
    silences.user_spoke()
    silences.heard(75.0, 1.0)
    assert silences.answered() == 0.0
    silences.turn_ended(76.0)
    silences.user_spoke()
    silences.nothing_said()
    silences.heard(78.0, 1.0)
    assert silences.answered() == pytest.approx(2.0), "it was a cough"
    silences.turn_ended(80.0)
    silences.heard(80.3, 1.0)
    assert silences.longest == pytest.approx(0.3)
    silences.turn_ended(90.0)
    assert silences.longest == 0.0, "each turn has its own"


@pytest.mark.parametrize(("fillers", "least", "most"), [((), 4.0, 5.0), (("One moment.",), 2.0, 3.5)])
def test_the_trace_has_the_silence_while_a_tool_runs(
    fillers: tuple[str, ...], least: float, most: float, tmp_path: Path
) -> None:
    agent = Agent(fillers=fillers)

    @agent.tool
    async def wait() -> str:
        """Wait."""
        await asyncio.sleep(4.0)
        return "done"

    talk = Talk("wait", llm=ScriptedLlm(["@wait {}", "It is done."]), agent=agent, speculate=False)
    talk.says(0.6, at=0.5)
    talk.run(12.0)

    async def write() -> None:
        file = TraceFile(str(tmp_path / "trace.jsonl"))
        traces = Traces(file, "call")
        for at, event in talk.log:
            traces.note(event, at, int(at * RATE))
        file.close()

    asyncio.run(write())
    (line,) = map(json.loads, (tmp_path / "trace.jsonl").read_text().splitlines())
    assert line["heard"] == "It is done."
    assert least < line["counts"]["longest_silence_ms"] / 1000 < most
