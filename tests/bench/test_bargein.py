"""Barge-in over a real socket: what the bench measures, and what a holding caller hears to the sample."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest
from support import speech
from support.serving import LINE, SCRIPTED, run_command

from rejoinder.agent.bench import bargein as bench_bargein
from rejoinder.agent.bench.bargein import CALL_ENDED, RESUMED, STOPPED, BargeinResult, measure, summarise
from rejoinder.agent.bench.callers.caller import open_call
from rejoinder.agent.bench.cases.overlap import (
    BACKCHANNEL,
    COUGH,
    INTERRUPTION_SETS,
    NOISE,
    REAL,
    OverlapSound,
    coughs,
    interruptions,
    noises,
)
from rejoinder.agent.bench.cases.recordings import speech_folder
from rejoinder.agent.client.audio import CLIENT_RATE
from rejoinder.agent.server.own_server import own_server
from rejoinder.pipeline.audio.chunk import Samples

LONG = LINE * 20


def hum(seconds: float) -> Samples:
    return (0.4 * np.sin(2 * np.pi * 300 * np.arange(int(seconds * CLIENT_RATE)) / CLIENT_RATE)).astype(
        np.float32
    )


def scripted(*lines: str) -> dict[str, str | None]:
    return {**SCRIPTED, "llm": f"scripted:llm|{LONG}", "stt": "|".join(("scripted:stt", *lines))}


@pytest.fixture(autouse=True)
def _scripted_vad(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REJOINDER_VAD", "scripted:vad")


def test_every_sample_of_a_paused_reply_is_heard_once_and_in_order() -> None:
    async def call(over: float | None) -> Samples:
        async with own_server(scripted("Mm-hm.")) as url, open_call(url) as caller:
            await caller.ask()
            await caller.until(lambda: caller.player.playing(caller.now), 5.0)
            begin = caller.now
            if over is not None:
                caller.say(hum(over))
            await caller.until(lambda: caller.now >= begin + 3 * CLIENT_RATE, 10.0)
            track = caller.tracks()[1][: begin + int(2.9 * CLIENT_RATE)]
            if over is not None:
                (hold,) = caller.holds
                assert hold.until is not None
                assert caller.replies[0].status == "" and caller.turns == []
                assert not track[hold.at : hold.until].any()
                track = np.delete(track, slice(hold.at, hold.until))
            return np.trim_zeros(track, "f")

    alone, paused = asyncio.run(call(None)), asyncio.run(call(0.3))
    length = min(len(alone), len(paused)) - CLIENT_RATE // 10
    assert length > 2 * CLIENT_RATE
    assert np.array_equal(alone[:length], paused[:length])


def test_the_bench_separates_interruptions_from_other_sounds() -> None:
    sounds = [
        OverlapSound(BACKCHANNEL, "mm-hm", hum(0.3), 0),
        OverlapSound(
            REAL,
            "stop",
            np.concatenate((np.zeros(CLIENT_RATE // 10, np.float32), hum(0.4))),
            CLIENT_RATE // 10,
        ),
    ]
    reported: list[BargeinResult] = []

    async def run() -> list[BargeinResult]:
        async with own_server(scripted("Mm-hm.", "stop")) as url:
            return await measure(url, sounds, 0, reported.append)

    results = asyncio.run(run())
    assert reported == results
    assert [(each.kind, each.outcome) for each in results] == [(BACKCHANNEL, RESUMED), (REAL, STOPPED)]
    assert results[0].gap_ms is not None and results[0].gap_ms > 100
    assert results[1].stop_ms is not None


def test_the_summary() -> None:
    results = [
        BargeinResult(REAL, "a", STOPPED, stop_ms=100.0),
        BargeinResult(REAL, "b", STOPPED, stop_ms=200.0),
        BargeinResult(REAL, "c", "missed"),
        BargeinResult(BACKCHANNEL, "d", RESUMED, gap_ms=400.0),
        BargeinResult(BACKCHANNEL, "e", RESUMED, gap_ms=700.0),
        BargeinResult(COUGH, "f", RESUMED, gap_ms=0.0),
        BargeinResult(NOISE, "g", CALL_ENDED, gap_ms=500.0),
    ]
    summary = summarise(results)
    assert (summary.missed, summary.stop_p50_ms, summary.resumed, summary.in_time) == (1, 150.0, 0.75, 0.5)
    assert (summary.paused, summary.gap_p50_ms) == (2, 550.0)
    assert bench_bargein.table(results).row_count == 5
    assert summarise([]).resumed is None


def test_the_sounds_are_what_they_are_called() -> None:
    speech.recordings("assistant_utterances", 1)
    folder = speech_folder()
    for sound in interruptions(folder, ["assistant_utterances"], 3, 0):
        assert 0 <= sound.begin <= CLIENT_RATE // 2
        assert len(sound.audio) <= 2.6 * CLIENT_RATE
    # Of one recording in this draw the first word, cut off, has no voice yet: it is left out.
    assert all(sound.begin < len(sound.audio) for sound in interruptions(folder, INTERRUPTION_SETS, 40, 2))
    assert len(noises(folder, 4, 0)) == len(coughs(4, 0)) == 4
    assert max(np.abs(sound.audio).max() for sound in coughs(4, 0)) <= 1.0


@pytest.mark.weights
def test_the_command_ends_in_a_line_of_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    speech.recordings("assistant_utterances", 1)
    monkeypatch.delenv("REJOINDER_VAD")
    report = tmp_path / "report.json"
    speech.need("whisper:tiny.en")
    done = run_command(
        *("bench", "bargein", "--count", "1", "--false", "1", "--tts", "scripted:tts"),
        *("--sets", "assistant_utterances", "--voices", "scripted:tts", "--json", str(report)),
        folder=tmp_path,
    )
    last = json.loads(done.stdout.splitlines()[-1])
    assert sorted(last) == ["resumed", "stop_p50_ms", "stop_p95_ms"]
    assert len(json.loads(report.read_text())["sounds"]) == 4
