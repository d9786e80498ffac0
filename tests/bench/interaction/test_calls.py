"""Scripted callers: the script of a seed, calls in virtual time and over a telephone, and the report."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest
from support import speech
from support.serving import SCRIPTED, THREE_LINES

from rejoinder.agent.bench.cases.overlap import BACKCHANNEL
from rejoinder.agent.bench.cases.recordings import speech_folder
from rejoinder.agent.bench.interaction import report
from rejoinder.agent.bench.interaction.calling import HOLDING, STANDARD, TELEPHONE, HeldCall, hold, perform
from rejoinder.agent.bench.interaction.definitions import ASIDE, LONG_TICK_SECONDS, RESPONSE, TIC, TURN, score
from rejoinder.agent.bench.interaction.script import CallScript, SayWhen, ScriptedSound, scripts
from rejoinder.agent.bench.interaction.sounds import MUFFLED, CallerSound, muffled, recorded, rooms
from rejoinder.agent.bench.interaction.virtual import open_virtual_call
from rejoinder.agent.client.audio import CLIENT_RATE
from rejoinder.agent.server.own_server import own_server
from rejoinder.agent.simulate import virtual_clock
from rejoinder.models.scripted import ScriptedLlm, ScriptedStt, ScriptedTts, ScriptedVad
from rejoinder.pipeline import LoadShedder, Models
from rejoinder.pipeline.audio.chunk import Samples

REPLY = "The ship sailed to the next island, and the people there told them about the weather."


def hum(seconds: float) -> Samples:
    times = np.arange(int(seconds * CLIENT_RATE)) / CLIENT_RATE
    return (0.4 * np.sin(2 * np.pi * 300 * times)).astype(np.float32)


def step(category: str, seconds: float, when: SayWhen = SayWhen.OVER_AGENT) -> ScriptedSound:
    return ScriptedSound(CallerSound(category, category, f"{seconds:g} s", hum(seconds)), when, 0.8)


SCRIPT = CallScript(
    "hum",
    [step(TURN, 0.6, SayWhen.IN_SILENCE), step(BACKCHANNEL, 0.4), step(TIC, 0.3, SayWhen.IN_SILENCE)],
    np.zeros(CLIENT_RATE, np.float32),
)


def virtual_call(wire: str, *lines: str) -> HeldCall:
    async def call() -> HeldCall:
        stt = ScriptedStt(lines)
        models = Models(ScriptedVad(), stt, ScriptedLlm([REPLY]), ScriptedTts(), None, LoadShedder(), {})
        async with open_virtual_call(models, SCRIPT.background, wire == HOLDING) as caller:
            return await perform(caller, wire, SCRIPT, 0)

    return virtual_clock.run(call())


def outcomes(call: HeldCall) -> list[tuple[str, bool]]:
    events = score(call.said, call.agent, call.seconds, LONG_TICK_SECONDS)
    return [(event.category, event.correct) for event in events]


@pytest.mark.parametrize("wire", [STANDARD, HOLDING])
def test_a_call_in_virtual_time_is_scored(wire: str) -> None:
    call = virtual_call(wire, "what is the weather", "Mm-hm.", "um")
    assert call.skipped == 0 and len(call.spoken) == len(call.played)
    assert outcomes(call) == [(RESPONSE, True), (BACKCHANNEL, True), (TIC, True)]


def test_an_agent_that_takes_a_backchannel_for_words_stops_and_answers() -> None:
    call = virtual_call(STANDARD, "what is the weather", "tell me more", "and more")
    assert dict(outcomes(call)) == {RESPONSE: True, BACKCHANNEL: False, TIC: False}


def test_the_report_has_the_figures_and_keeps_the_worst(tmp_path: Path) -> None:
    calls = [virtual_call(STANDARD, "what is the weather", "tell me more", "and more")]
    assert report.figures_table(calls).row_count == 8
    assert report.kinds_table(calls).row_count == 2
    data = report.interaction_report(calls)
    assert data["figures"][STANDARD]["200 ms"]["backchannels"] == 0.0
    worst = report.keep_worst(calls, tmp_path)
    assert [each.event.correct for each in worst] == sorted(each.event.correct for each in worst)
    trace = json.loads((tmp_path / "01.json").read_text())
    assert trace["said"] and trace["agent"] and not trace["correct"]
    assert (tmp_path / "01.wav").stat().st_size > CLIENT_RATE


@pytest.mark.server
def test_a_telephone_hears_and_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REJOINDER_VAD", "scripted:vad")

    async def call() -> HeldCall:
        flags: dict[str, str | None] = {**SCRIPTED, "llm": THREE_LINES, "stt": "scripted:stt|hello|Mm-hm.|um"}
        async with own_server(flags) as url:
            return await hold(TELEPHONE, url, SCRIPT, 0)

    held = asyncio.run(call())
    assert held.skipped == 0 and held.agent
    assert (RESPONSE, True) in outcomes(held)
    assert np.abs(held.played).max() > 0.05


def test_a_seed_gives_the_same_script() -> None:
    speech.recordings("mfa_hesitations", 1)
    folder = speech_folder()
    sounds = [*recorded(folder), *rooms(folder)]
    sounds.append(CallerSound(ASIDE, MUFFLED, "hum", muffled(hum(1.0))))
    one, same, other = (scripts(folder, sounds, 2, seed) for seed in (0, 0, 1))

    def names(plan: list[CallScript]) -> list[str]:
        return [step.sound.name for script in plan for step in script.sounds]

    assert names(one) == names(same) != names(other)
    assert one[0].speaker != one[1].speaker
    assert {step.sound.category for step in one[0].sounds} == {TURN, BACKCHANNEL, TIC, ASIDE}
    assert max(np.abs(step.sound.audio).max() for step in one[0].sounds) <= 1.0
