"""A caller with an open loudspeaker, and what the bench makes of its calls."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import numpy as np
import pytest
from support import speech
from support.serving import LINE, SCRIPTED, run_command

from rejoinder.agent.bench.callers.microphone import MICROPHONE_FRAME, Microphone
from rejoinder.agent.bench.callers.room import Room
from rejoinder.agent.bench.cases.overlap import REAL, OverlapSound
from rejoinder.agent.bench.cases.recordings import speech_folder
from rejoinder.agent.bench.echo import measuring as bench_echo
from rejoinder.agent.bench.echo.measuring import LEVELS, EchoResult, Place, measure, places, summarise
from rejoinder.agent.client.audio import CLIENT_RATE
from rejoinder.agent.server.own_server import own_server
from rejoinder.agent.simulate.player import Player
from rejoinder.pipeline.audio.chunk import Samples


def noise(count: int) -> Samples:
    return np.random.default_rng(0).normal(0.0, 0.1, count).astype(np.float32)


def test_the_microphone_hears_the_loudspeaker_later_and_softer() -> None:
    response = np.zeros(100, np.float32)
    response[[0, 50]] = 0.8, 0.6
    room, player = Room(response, -6.0, 0.1), Player()
    microphone = Microphone(echo=lambda begin: room.echo(player, begin))
    played = noise(CLIENT_RATE // 2)
    player.play("a", played[:9_999], 2_000)
    for _ in range(50):
        microphone.frame()
        if microphone.position == 10 * MICROPHONE_FRAME:
            player.play("a", played[9_999:], 2_000)
    track = microphone.track()
    begin = 2_000 + CLIENT_RATE // 10
    wanted = np.convolve(played, response) * 10 ** (-6 / 20)
    assert np.abs(track[: begin - 1]).max() < 1e-6
    assert np.allclose(track[begin : begin + len(wanted)][: len(track) - begin], wanted, atol=1e-5)


def test_flushed_audio_is_not_heard() -> None:
    player = Player()
    player.play("a", noise(CLIENT_RATE), 0)
    player.flush(CLIENT_RATE // 2)
    assert not player.sound(CLIENT_RATE // 2, CLIENT_RATE).any()
    assert np.array_equal(player.sound(100, 200), noise(CLIENT_RATE)[100:200])
    assert np.array_equal(
        player.sound(-50, 50), np.concatenate((np.zeros(50, np.float32), noise(CLIENT_RATE)[:50]))
    )


def test_the_summary() -> None:
    results = [
        EchoResult("a", 0.0, 60.0, ["the ship"], [(2.0, 400.0)], [100.0, None], ["stop"]),
        EchoResult("b", -6.0, 60.0, [], [], [200.0, 300.0]),
        EchoResult("music", None, 60.0, ["la"], [], [100.0]),
    ]
    summary = summarise(bench_echo.echoes(results))
    assert (summary.minutes, summary.self_interruptions_per_10min, summary.pauses) == (2.0, 5.0, 1)
    assert (summary.caught, summary.stop_p50_ms) == (0.75, 200.0)
    assert bench_echo.table(results).row_count == 4
    assert summarise([]).caught is None
    assert "itself 1 times: the ship" in str(results[0])


def test_every_room_at_every_level() -> None:
    speech.recordings("rir")
    where = places(speech_folder(), 0)
    assert len([place for place in where if place.room]) == 3 * len(LEVELS)
    assert [place.level for place in where if place.noise is not None] == [None]


def test_a_turn_without_a_caller_is_a_self_interruption(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the gate it hears itself; with a headset it hears who interrupts it."""
    monkeypatch.setenv("REJOINDER_VAD", "scripted:vad")
    room = Room(np.ones(1, np.float32), 0.0, 0.2)
    stop = OverlapSound(REAL, "stop", 0.5 * np.sign(noise(CLIENT_RATE)), 0)
    flags = {**SCRIPTED, "llm": f"scripted:llm|{LINE * 20}", "stt": "scripted:stt|hello there"}

    async def run() -> list[EchoResult]:
        async with own_server(flags, environment={"REJOINDER_ECHO_GATE": "false"}) as url:
            alone = await measure(url, [Place("open", 0.0, room)], [], 3.0, lambda result: None)
            return alone + await measure(url, [Place("headset")], [stop], 3.0, lambda result: None)

    itself, headset = asyncio.run(run())
    assert itself.own
    assert headset.own == headset.missed == []
    assert len(headset.stops_ms) == 1


@pytest.mark.weights
def test_the_command_ends_in_a_line_of_figures(tmp_path: Path) -> None:
    speech.recordings("rir")
    speech.recordings("assistant_utterances", 1)
    speech.need("whisper:tiny.en")
    report = tmp_path / "report.json"
    done = run_command(
        *("bench", "echo", "--minutes", "0.1", "--each", "0", "--tts", "scripted:tts"),
        *("--json", str(report)),
        folder=tmp_path,
    )
    last = json.loads(done.stdout.splitlines()[-1])
    assert sorted(last) == ["caught", "self_interruptions_per_10min"]
    assert len(json.loads(report.read_text())["calls"]) == 13
