"""Several callers at once: when they speak, what is counted, and one small run of each bench for real."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise, repeat
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
import soundfile
from click.testing import Result
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from rejoinder.agent.bench import load as bench_load
from rejoinder.agent.bench.cases.recordings import Recording
from rejoinder.agent.bench.cases.worst_messages import WORST
from rejoinder.agent.bench.engine_work import EngineWork, by_role, difference
from rejoinder.agent.bench.load import REST_SECONDS, SCATTER, Level, LoadedRecording, every, plan
from rejoinder.agent.bench.overhead import costs, loop_blocking
from rejoinder.agent.bench.overhead.calls import joined
from rejoinder.agent.bench.overhead.subject import FRAME_SECONDS, Spent, Workload
from rejoinder.agent.cli.bench import app as bench
from rejoinder.agent.client.audio import CLIENT_RATE
from rejoinder.agent.simulate import virtual_clock

SCRIPTED = ["--llm", "scripted:llm|It is a sunny day today.", "--stt", "scripted:stt|what is the weather"]
SCRIPTED += ["--tts", "scripted:tts", "--turn", "scripted:turn"]


def spoken(seconds: float) -> LoadedRecording:
    recording = Recording("toy", Path("a.wav"), "speaker", None, seconds)
    return LoadedRecording(
        recording, np.zeros(int(seconds * CLIENT_RATE), np.float32), None, int(seconds * CLIENT_RATE)
    )


def test_turns_are_planned_before_the_first_and_spread() -> None:
    said = spoken(2.0)
    callers = plan(repeat(said), 4, 600.0)
    assert callers == plan(repeat(said), 4, 600.0) != plan(repeat(said), 4, 600.0, seed=1)
    assert every(callers) == 2.0 + REST_SECONDS
    for turns in callers:
        assert len(turns) == pytest.approx(600 / every(callers), rel=0.1)
        rests = [after.at - before.at - 2.0 for before, after in pairwise(turns)]
        assert min(rests) >= REST_SECONDS * (1 - SCATTER) and max(rests) <= REST_SECONDS * (1 + SCATTER)
    begins = [turns[0].at for turns in plan(repeat(said), 8, REST_SECONDS)]
    assert len(begins) == 8 and max(begins) - min(begins) > REST_SECONDS / 2, "not all at once"


def test_callers_talk_in_turns_of_their_own() -> None:
    load = Workload(sessions=20, speaking=2, warm=1.0, seconds=1.0)
    said = [[load.talks(session, frame) for frame in range(200)] for session in range(20)]
    assert [sum(one) for one in said] == [60, 60] + [0] * 18
    assert said[0] != said[1] and load.warm_frames == 50


def test_a_level_is_processor_time_per_frame_and_session() -> None:
    spent = Spent(processor=1.2, seconds=2.0, lags=[0.001] * 99 + [0.101], answers=7)
    level = costs.level("Session", Workload(200, 20, 1.0, 2.0), spent)
    assert (level.microseconds, level.cores) == (pytest.approx(60.0), pytest.approx(0.6))
    assert level.lag_p50_ms == pytest.approx(1.0) and 1.0 < level.lag_p99_ms < 101.0
    assert costs.speakers(200, True) == 20 and costs.speakers(1, True) == 1
    assert costs.speakers(200, False) == 0


def test_several_servers_are_measured_at_the_same_time(tmp_path: Path) -> None:
    flags = [
        "--way",
        "websocket",
        "--processes",
        "2",
        "--sessions",
        "4",
        "--one-in",
        "2",
        "--muted",
        "--seconds",
        "3",
    ]
    result = CliRunner().invoke(bench.app, ["overhead", *flags, "--json", str(tmp_path / "overhead.json")])
    assert result.exit_code == 0, result.output
    (level,) = json.loads((tmp_path / "overhead.json").read_text())["levels"]
    assert (level["processes"], level["sessions"], level["speaking"]) == (2, 4, 2)
    assert level["answers"] > 0 and level["cores"] > 0.0 and level["caller_cores"] > 0.0


def test_several_processes_share_a_load_and_their_costs_are_joined() -> None:
    load = Workload(10, 2, 1.5, 5.0, muted=True)
    parts = costs.shares(load, 4)
    assert (load.sending, parts[0].sending, parts[3].sending) == (2, 1, 0)
    assert [(part.sessions, part.speaking) for part in parts] == [(3, 1), (3, 1), (2, 0), (2, 0)]
    whole = joined([Spent(1.0, 2.0, [0.1], answers=1, peak=5, callers=0.5), Spent(0.5, 2.1, [0.3], peak=7)])
    assert (whole.processor, whole.seconds, whole.lags) == (1.5, 2.1, [0.1, 0.3])
    assert (whole.answers, whole.peak, whole.callers) == (1, 7, 0.5)


def test_idle_callers_send_what_is_due_together_and_nothing_is_left_out() -> None:
    sent: list[tuple[int, int, float]] = []

    async def feed(tick: float) -> None:
        loop = asyncio.get_running_loop()
        began = loop.time()

        async def send(session: int, frame: int) -> None:
            sent.append((session, frame, loop.time() - began))

        await Workload(20, 0, 0.0, 2.0).feed(send, tick)

    for tick in (0.0, 0.004):
        sent.clear()
        virtual_clock.run(feed(tick))
        late = [at - (FRAME_SECONDS * frame + 0.001 * session) for session, frame, at in sent]
        assert -1e-9 <= min(late) and max(late) <= tick + 1e-9
        assert [frame for session, frame, _ in sent if session == 0] == list(range(100))
        moments = len({round(at, 6) for _, _, at in sent})
        assert (moments == len(sent)) if not tick else (moments <= 2.0 / tick)


def said(result: Result) -> str:
    """Return what a command wrote to stderr, without the frame around it."""
    return " ".join(result.stderr.replace("│", " ").split())


def toy_set(folder: Path) -> Path:
    (folder / "toy").mkdir()
    quiet = np.zeros(4_000, np.float32)
    loud = np.random.default_rng(0).normal(0.0, 0.1, 16_000).astype(np.float32)
    audio = np.concatenate((quiet, loud, quiet))
    soundfile.write(folder / "toy" / "a.wav", audio, 16_000)
    row = {"file": "a.wav", "speaker": "a", "duration_s": 1.5}
    (folder / "toy" / "manifest.jsonl").write_text(json.dumps(row))
    return folder


@pytest.mark.skipif(not Path("/proc/self/stat").is_file(), reason="needs Linux")
def test_two_callers_beside_silent_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra bench")
    monkeypatch.setenv("REJOINDER_VAD", "scripted:vad")
    flags = [*SCRIPTED, "--speech", str(toy_set(tmp_path)), "--sets", "toy", "--seconds", "9", "--idle", "3"]
    flags += ["--sessions", "2", "--json", str(tmp_path / "load.json"), "--plot", str(tmp_path / "load.png")]
    result = CliRunner().invoke(bench.app, ["load", *flags])
    assert result.exit_code == 0, result.output
    (level,) = json.loads((tmp_path / "load.json").read_text())["levels"]
    assert level["answered"] == level["asked"] >= 3
    committed = level["load_levels"]
    assert sum(committed.values()) == level["asked"], "at which load level each answer was committed"
    assert level["latency"]["p50"] > 0 and level["processor_s"] > 0 and level["idle"] == 3
    assert sum(part["ms"] for part in level["waterfall"]) == pytest.approx(level["latency"]["mean"])
    turns = [sum(turn.values()) for turn in level["turns"]]
    assert len(turns) == level["answered"] and fmean(turns) == pytest.approx(level["latency"]["mean"])
    assert set(level["engines"]) <= {"vad", "stt", "turn", "llm", "tts"}
    assert (tmp_path / "load.png").read_bytes().startswith(b"\x89PNG") and "2 + 3 idle" in result.stdout


def test_work_of_engines_is_that_between_two_scrapes() -> None:
    def scraped(*engines: tuple[str, str, int, float]) -> dict[str, EngineWork]:
        lines = ["# TYPE rejoinder_engine_batch_jobs histogram"]
        lines += [
            f'rejoinder_engine_batch_jobs_sum{{engine="{engine}",role="{role}"}} {jobs}'
            for engine, role, jobs, _ in engines
        ]
        lines.append("# TYPE rejoinder_engine_busy_seconds counter")
        lines += [
            f'rejoinder_engine_busy_seconds_total{{engine="{engine}",role="{role}"}} {busy}'
            for engine, role, _, busy in engines
        ]
        return by_role(text_string_to_metric_families("\n".join(lines) + "\n"))

    before = scraped(("whisper", "stt", 3, 0.5), ("ort", "llm", 0, 0.0), ("piper", "tts", 2, 1.0))
    after = scraped(
        ("whisper", "stt", 7, 1.5), ("ort", "llm", 5, 1.0), ("ort#2", "llm", 1, 0.5), ("piper", "tts", 2, 1.0)
    )
    assert difference(before, after) == {"stt": EngineWork(4.0, 1.0), "llm": EngineWork(6.0, 1.5)}


def test_the_overhead_of_both_ways_is_measured(tmp_path: Path) -> None:
    flags = ["--sessions", "3", "--seconds", "3", "--json", str(tmp_path / "overhead.json")]
    result = CliRunner().invoke(bench.app, ["overhead", *flags])
    assert result.exit_code == 0, result.output
    levels = json.loads((tmp_path / "overhead.json").read_text())["levels"]
    assert [(level["way"], level["speaking"]) for level in levels] == [
        ("Session", 0), ("Session", 1), ("WebSocket", 0), ("WebSocket", 1),
    ]  # fmt: skip
    assert all(level["microseconds"] > 1 and level["lag_p99_ms"] >= level["lag_p50_ms"] for level in levels)
    assert [level["answers"] > 0 for level in levels] == [False, True, False, True]


def test_how_long_a_message_blocks_the_loop_is_measured_on_every_wire() -> None:
    firsts = {one.wire: one for one in reversed(WORST)}
    reported: list[loop_blocking.MessageCost] = []
    blocked = asyncio.run(loop_blocking.measure("scripted:vad", reported.append, [*firsts.values()]))
    assert blocked == reported and {cost.wire for cost in blocked} == {
        "realtime",
        "pcm",
        "phone",
        "completions",
        "wyoming",
    }
    for cost in blocked:
        # A message of 64 KiB may block for less than the clock of the loop resolves.
        assert 0.0 <= cost.p50_ms <= cost.p99_ms <= cost.longest_ms and cost.busy_ms > 0.0
        assert cost.message in str(loop_blocking.table(blocked).columns[1]._cells)
    assert max(cost.longest_ms for cost in blocked) > 0.0


def test_the_messages_are_as_long_as_they_say() -> None:
    for worst in WORST:
        made = worst.made()
        if "15 MiB" in worst.name:
            assert 0.98 * 15 * 2**20 < len(made if isinstance(made, bytes) else made.encode()) < 15 * 2**20


def test_loads_that_cannot_be_measured_are_refused(tmp_path: Path) -> None:
    run = CliRunner().invoke
    for numbers in ("0", "", "1,x", "-1"):
        refused = run(bench.app, ["load", "--sessions", numbers])
        assert refused.exit_code == 2 and "separated by commas" in said(refused)
    both = run(bench.app, ["load", "--url", "ws://127.0.0.1:9/", "--tts", "hibari"])
    assert both.exit_code == 2
    way = run(bench.app, ["overhead", "--way", "pigeon"])
    assert way.exit_code == 2 and "session, websocket, both or messages" in said(way)
    for several in (
        ["--processes", "2"],
        ["--processes", "2", "--way", "websocket", "--sessions", "1,4"],
        ["--processes", "2", "--way", "websocket", "--sessions", "4", "--muted"],
    ):
        refused = run(bench.app, ["overhead", *several])
        assert refused.exit_code == 2 and "several processes need" in said(refused)
    url = ["--url", "ws://127.0.0.1:9/", "--speech", str(toy_set(tmp_path)), "--sets", "toy"]
    silent = run(bench.app, ["load", "--sessions", "1", "--seconds", "1", *url])
    assert silent.exit_code == 1 and "no turn was answered" in silent.stderr
    idle = run(bench.app, ["load", "--sessions", "1", "--seconds", "1", *url, "--idle", "1"])
    assert idle.exit_code == 1 and "an idle caller cannot call ws://127.0.0.1:9/" in idle.stderr


def test_a_level_of_another_server_has_no_processor_time() -> None:
    level = Level(1, 0, 2.0, 6.0, bench_load.count([]), [], {}, None)
    assert level.cores is None
    assert bench_load.report([level])["levels"][0]["cores"] is None
