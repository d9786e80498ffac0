"""The figures of a bench: statistics, parts that add up, and clips that are all counted."""

import asyncio
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import psutil
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from support.ports import unused_port
from typer.testing import CliRunner

from rejoinder.agent import machine
from rejoinder.agent.bench import interrupted_call as bench_call
from rejoinder.agent.bench import latency as bench_latency
from rejoinder.agent.bench import process as bench_process
from rejoinder.agent.bench import stt as bench_stt
from rejoinder.agent.bench.callers.caller import LiveCaller
from rejoinder.agent.bench.callers.turns import HeardReply
from rejoinder.agent.bench.latency import (
    ANSWERED,
    ANSWERED_EARLY,
    CALL_FAILED,
    NO_ANSWER,
    ClipResult,
    count,
    judge,
    mean_waterfall,
)
from rejoinder.agent.bench.reports.output import with_report
from rejoinder.agent.bench.reports.waterfall import (
    HEARD_END,
    REST_LABEL,
    bars,
    complete,
    mean_parts,
    summarise,
    total,
    waterfall,
)
from rejoinder.agent.cli.bench import app as bench
from rejoinder.agent.cli.bench import latency as latency_command
from rejoinder.agent.server.own_server import ServerFailed, command_line, own_server

MILLISECONDS = st.floats(0, 20_000, allow_nan=False)
PARTS = st.lists(
    st.tuples(st.sampled_from(["pause", "words", "LLM", "TTS", "send"]), MILLISECONDS), max_size=5
)
UNIQUE_PARTS = PARTS.map(lambda parts: list(dict(parts).items()))


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["turns", "--json"], ["turns", "--json", "-"]),
        (["turns", "--json", "--fit", "."], ["turns", "--json", "-", "--fit", "."]),
        (["--json", "-"], ["--json", "-"]),
        (["turns", "--json", "report.json", "--fit", "."], ["turns", "--json", "report.json", "--fit", "."]),
        (["turns"], ["turns"]),
    ],
)
def test_a_report_without_a_file_goes_to_stdout(given: list[str], meant: list[str]) -> None:
    assert with_report(given) == meant


@pytest.mark.parametrize("command", [[], ["turns"], ["bargein"], ["echo"], ["load"], ["stt"], ["longcall"]])
def test_a_bench_takes_a_bare_json(command: list[str]) -> None:
    output = CliRunner().invoke(bench.app, [*command, "--speech", "/nowhere", "--json"]).output
    assert "/nowhere" in output and "requires an argument" not in output


@given(st.lists(MILLISECONDS, min_size=1))
def test_statistics_are_in_order(values: list[float]) -> None:
    summary = summarise(values)
    assert summary.count == len(values)
    assert summary.p50 is not None and summary.p95 is not None and summary.p99 is not None
    assert min(values) <= summary.p50 <= summary.p95 <= summary.p99 <= max(values)
    assert summary.mean == pytest.approx(sum(values) / len(values))


def test_nothing_has_no_statistics() -> None:
    assert summarise([]).p50 is None


@given(UNIQUE_PARTS, MILLISECONDS, st.none() | st.floats(-500, 500))
def test_a_turns_parts_add_up_to_what_the_client_measured(
    server: list[tuple[str, float]], client: float, heard_end: float | None
) -> None:
    parts = complete(server, client, heard_end)
    assert total(parts) == pytest.approx(client, abs=1e-6)
    assert parts[-1][0] == REST_LABEL
    assert (parts[0][0] == HEARD_END) == (heard_end is not None)


@given(st.lists(st.tuples(UNIQUE_PARTS, MILLISECONDS), min_size=1, max_size=6))
def test_the_means_of_parts_add_up_to_the_mean(turns: list[tuple[list[tuple[str, float]], float]]) -> None:
    whole = [complete(server, client, None) for server, client in turns]
    mean = mean_parts(whole)
    assert total(mean) == pytest.approx(sum(client for _, client in turns) / len(turns), abs=1e-6)
    assert mean[-1][0] == REST_LABEL
    assert len({name for name, _ in mean}) == len(mean)


@given(UNIQUE_PARTS, st.floats(0, 20_000), st.integers(1, 60))
def test_bars_join_up_and_fit(server: list[tuple[str, float]], client: float, width: int) -> None:
    parts = complete(server, client, None)
    drawn = bars(parts, width)
    assert len(drawn) == len(parts)
    assert all(0 <= start and start + length <= width for start, length in drawn)


def test_a_waterfall_shows_every_part_and_the_sum() -> None:
    console = Console(width=100)
    with console.capture() as shown:
        console.print(waterfall([("think", 600.0), ("speak", 400.0)], "here", [[("think", 600.0)]]))
    text = shown.get()
    assert all(word in text for word in ("think", "speak", "600", "400", "1000", "here", "turn 1", "–"))


def row(outcome: str, latency: float | None = None, cut_off: bool = False, set_: str = "a") -> ClipResult:
    parts = tuple(complete([("LLM", 10.0)], latency, None)) if latency else ()
    return ClipResult(set_, "f", "s", None, 1.0, outcome, cut_off=cut_off, latency_ms=latency, parts=parts)


RESULTS = [
    row(ANSWERED, 500.0), row(ANSWERED, 700.0, cut_off=True), row(ANSWERED_EARLY, cut_off=True),
    row(NO_ANSWER, set_="b"), row(CALL_FAILED, set_="b"),
]  # fmt: skip


def test_every_clip_is_counted_once() -> None:
    counted = count(RESULTS)
    assert counted.clips == 5
    assert counted.answered + counted.answered_only_early + counted.silent + counted.failed == counted.clips
    assert counted.cut_off == 2
    assert counted.latency.count == 2 and counted.latency.p50 == 600.0
    assert mean_waterfall(RESULTS) == [("LLM", 10.0), (REST_LABEL, 590.0)]
    assert mean_waterfall(RESULTS[2:]) == []


def test_reports_name_all_of_it() -> None:
    report = json.loads(json.dumps(bench_latency.report(RESULTS)))
    assert report["summary"]["clips"] == len(report["clips"]) == 5
    assert report["sets"]["b"]["latency"]["p50"] is None
    assert math.isclose(sum(part["ms"] for part in report["waterfall"]), report["summary"]["latency"]["mean"])
    console = Console(width=80)
    with console.capture() as shown:
        console.print(*bench_latency.tables(RESULTS))
    text = " ".join(shown.get().split())
    assert "1 cut off and only answered early, 1 without a reply, 1 failed calls" in text


END = 24_000
ABOUT = ("set", "file", "speaker", None, 1.0)


def judged(happen: Callable[[LiveCaller], object]) -> ClipResult:
    async def run() -> ClipResult:
        caller = LiveCaller(cast(Any, None))
        happen(caller)
        return judge(caller, END, ABOUT)

    return asyncio.run(run())


def reply(caller: LiveCaller, name: str, created: int, heard: int | None) -> HeardReply:
    made = HeardReply(name, created, name, heard_end=END + 2400)
    caller.replies.append(made)
    if heard is not None:
        caller.player.play(name, np.full(480, 0.5, np.float32), heard)
    return made


def test_an_answer_is_timed_from_the_end_of_speech_and_split() -> None:
    def happen(caller: LiveCaller) -> None:
        reply(caller, "r", END + 6000, END + 12_000).parts = [("pause", 100.0), ("LLM", 250.0)]

    result = judged(happen)
    assert (result.outcome, result.cut_off, result.latency_ms) == (ANSWERED, False, 500.0)
    assert result.parts == ((HEARD_END, 100.0), ("pause", 100.0), ("LLM", 250.0), (REST_LABEL, 50.0))


def test_an_answer_to_half_of_it_is_a_cut_off_and_the_next_one_counts() -> None:
    def happen(caller: LiveCaller) -> None:
        reply(caller, "half", END - 6000, END - 4800)
        reply(caller, "whole", END + 9600, END + 14_400)

    result = judged(happen)
    assert (result.outcome, result.cut_off, result.early_ms, result.latency_ms) == (
        ANSWERED,
        True,
        250.0,
        600.0,
    )


def test_only_an_early_answer_is_reported_as_that() -> None:
    result = judged(lambda caller: reply(caller, "half", END - 6000, END + 1200))
    assert (result.outcome, result.cut_off, result.latency_ms) == (ANSWERED_EARLY, True, None)


def test_an_inaudible_reply_does_not_count() -> None:
    result = judged(lambda caller: reply(caller, "mute", END + 6000, None))
    assert (result.outcome, result.cut_off) == (NO_ANSWER, False)


def test_word_errors_are_counted_after_whispers_normaliser() -> None:
    pytest.importorskip("jiwer", reason="needs the extra bench")
    rate = bench_stt.error_rate()
    assert rate(["Mister Brown won't pay $20."], ["mr. brown will not pay twenty dollars"]) == 0.0
    first, second = "red green blue black", "cats like warm milk"
    utterances = [
        bench_stt.RecognisedUtterance("s", "a", first, first, 0.1, "red green blue", 0.4),
        bench_stt.RecognisedUtterance("s", "b", second, "cats like milk", 0.3, "cats like warm silk", 0.6),
    ]
    compared = bench_stt.compare(utterances, rate)
    assert (compared.streamed_wer, compared.shipped_wer, compared.relative) == (0.125, 0.25, -0.5)
    assert compared.streamed.p50 == pytest.approx(200.0) and compared.shipped.p50 == pytest.approx(500.0)


def test_a_report_says_where_it_was_made_and_gives_no_key_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "sys.argv", ["/usr/bin/rejoinder", "bench", "--key", "s3cret", "--key=s3cret", "--clips", "3"]
    )
    made = machine.occasion()
    assert made["command"].startswith("rejoinder bench --key") and "s3cret" not in json.dumps(made)
    assert made["command"].endswith("--clips 3")
    assert made["machine"]["cores"] >= 1 and made["machine"]["cpu"]


def test_the_command_refuses_what_cannot_work(tmp_path: Path) -> None:
    runner = CliRunner()
    both = runner.invoke(bench.app, ["--url", "ws://127.0.0.1:9/", "--tts", "hibari"])
    assert both.exit_code == 2
    nowhere = runner.invoke(bench.app, ["--speech", str(tmp_path / "nowhere")])
    assert nowhere.exit_code == 1 and "there is no folder of recordings" in nowhere.output
    nothing = runner.invoke(bench.app, ["stt", "--speech", str(tmp_path)])
    assert nothing.exit_code == 1 and "manifest.jsonl" in nothing.output


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8080/v1/realtime", "127.0.0.1:8080", "ws://", "ws://[::1", "ws://a:b/", ""]
)
def test_an_address_that_is_no_websocket_is_refused_before_anything_is_played(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(latency_command, "choose", None)  # would be called for the recordings
    refused = CliRunner().invoke(bench.app, ["--url", url])
    assert refused.exit_code == 2 and "ws://HOST:PORT/v1/realtime" in " ".join(refused.stderr.split())


def toy_set(folder: Path, *speakers: str) -> Path:
    (folder / "toy").mkdir()
    rows = []
    for speaker in speakers:
        audio = np.random.default_rng(0).normal(0.0, 0.1, 4000).astype(np.float32)
        soundfile.write(folder / "toy" / f"{speaker}.wav", audio, 16_000)
        rows.append({"file": f"{speaker}.wav", "speaker": speaker, "duration_s": 0.25})
    (folder / "toy" / "manifest.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def test_calls_that_all_fail_say_why_and_end_with_1(tmp_path: Path) -> None:
    url = f"ws://127.0.0.1:{unused_port()}/"
    arguments = [
        "--speech",
        str(toy_set(tmp_path, "a", "b")),
        "--sets",
        " toy,",
        "--clips",
        "3",
        "--url",
        url,
    ]
    result = CliRunner().invoke(bench.app, [*arguments, "--json", str(tmp_path / "report.json")])
    assert result.exit_code == 1, result.output
    said = " ".join(result.stdout.split())
    assert "found only 2 recordings of up to 15 s in toy; playing all of them" in said
    assert f"call failed toy/a.wav: cannot call {url}" in said
    assert f"2 x cannot call {url}" in said
    assert "none of the 2 clips was answered; most common reason (2 of 2): cannot call" in result.stderr
    written = json.loads((tmp_path / "report.json").read_text())
    assert list(written["errors"].values()) == [2] and len(written["clips"]) == 2


def test_why_nothing_was_answered_is_the_most_common_reason() -> None:
    failed = [replace(row(CALL_FAILED), error=error) for error in ("no", "busy", "busy")]
    assert bench_latency.nothing_answered([row(ANSWERED, 5.0), *failed]) == ""
    assert bench_latency.nothing_answered([row(NO_ANSWER), *failed]) == (
        "none of the 4 clips was answered; most common reason (2 of 4): busy"
    )
    assert bench_latency.nothing_answered([row(NO_ANSWER), row(ANSWERED_EARLY), row(NO_ANSWER)]) == (
        "none of the 3 clips was answered, and the server gave no reason; most common outcome (2): no answer"
    )
    assert bench_latency.reasons(failed) == [("busy", 2), ("no", 1)]
    assert str(failed[0]).endswith("call failed  a/f: no")


@pytest.mark.skipif(not Path("/proc/self/statm").is_file(), reason="needs Linux")
def test_a_long_call_is_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REJOINDER_VAD", "scripted:vad")
    monkeypatch.setattr(bench_call, "SETTLE_SECONDS", 0.1)
    flags = ["--llm", "scripted:llm|It is a sunny day today.", "--stt", "scripted:stt|hello there"]
    flags += ["--tts", "scripted:tts", "--turn", "scripted:turn", "--speech", str(toy_set(tmp_path, "a"))]
    flags += ["--turns", "22", "--idle", "0.5", "--set", "toy", "--json", str(tmp_path / "call.json")]
    result = CliRunner().invoke(bench.app, ["longcall", *flags])
    assert result.exit_code == 0, result.output
    assert "memory after 22 turns" in result.stdout and "of one core" in result.stdout
    written = json.loads((tmp_path / "call.json").read_text())
    assert 1e7 < written["early"] < 1e9 and 0.9 < written["ratio"] < 1.2
    assert 0.0 <= written["idle"] < 1.0


def test_a_bench_reads_the_memory_and_the_time_of_a_process() -> None:
    process = psutil.Process()
    if not Path("/proc/self/statm").is_file():
        with pytest.raises(bench_process.NeedsLinux):
            bench_process.check_proc()
        return
    assert bench_process.resident(process.pid) == pytest.approx(process.memory_info().rss, rel=0.05)
    spent = process.cpu_times()
    assert bench_process.processor_seconds(process.pid) == pytest.approx(spent.user + spent.system, abs=0.1)


def test_unknown_or_empty_sets_are_reported(tmp_path: Path) -> None:
    folder = str(toy_set(tmp_path, "a"))
    unknown = CliRunner().invoke(bench.app, ["--speech", folder, "--sets", "tay"])
    assert unknown.exit_code == 1 and "there is no set 'tay'" in unknown.stderr
    assert unknown.stderr.strip().endswith("are: toy")
    none = CliRunner().invoke(bench.app, ["--speech", folder, "--sets", " , "])
    assert none.exit_code == 2 and "name at least one set" in none.stderr


def test_flags_reach_the_server_and_its_last_words_reach_us() -> None:
    assert command_line(7, {"tts": "hibari:heart", "llm": None})[3:] == [
        "serve", "--host", "127.0.0.1", "--port", "7", "--tts", "hibari:heart",
    ]  # fmt: skip

    async def start() -> None:
        async with own_server({"log-level": "nonsense"}, Console(quiet=True)):
            pass

    with pytest.raises(ServerFailed, match=r"(?s)status 2.*nonsense"):
        asyncio.run(start())
