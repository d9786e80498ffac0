"""The longest silence of an answer: a table of what happens, without a clock, and in a trace of a real call."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.serving import Talk, serving

from rejoinder.agent.wires.silences import Silences

AGENT = """
import asyncio
from rejoinder import Agent

agent = Agent(fillers=("One moment.",))

@agent.tool
async def wait() -> str:
    await asyncio.sleep({seconds})
    return "done"
"""


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
    silences.turn_ended(80.0)
    silences.heard(80.3, 1.0)
    assert silences.longest == pytest.approx(0.3)
    silences.turn_ended(90.0)
    assert silences.longest == 0.0, "each turn has its own"


@pytest.mark.server
def test_the_trace_has_the_silence_of_a_tool(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(AGENT.format(seconds=3.0))
    (tmp_path / "rejoinder.toml").write_text('trace_file = "trace.jsonl"\nspeculate = "never"\n')
    with serving(tmp_path, "mine.py", llm="scripted:llm|@wait {}|It is done.") as server:
        with Talk(server) as talk:
            talk.speak()
            while "done" not in json.dumps(talk.until("response.done")["response"]["output"]):
                pass
        server.wait_idle()
    last = json.loads((tmp_path / "trace.jsonl").read_text().splitlines()[-1])
    assert last["heard"] == "It is done."
    silence = last["counts"]["longest_silence_ms"]
    assert 1000.0 < silence < 20_000.0, "the rest of the run after the filler"
