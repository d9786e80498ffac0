"""/metrics of a running server: who may read it, and that Prometheus itself can."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from prometheus_client.parser import text_string_to_metric_families
from support.paths import ROOT
from support.servers.in_process import served_here, until
from support.serving import PATIENCE, unused_port
from support.speech import need, recordings
from websockets.asyncio.client import connect

from rejoinder.agent.config import load
from rejoinder.agent.metrics import server_metrics
from rejoinder.agent.server.keys import hashed
from rejoinder.agent.server.server import Server as Program
from rejoinder.agent.server.serving import listen, web
from rejoinder.models.specs import ROLES
from rejoinder.pipeline.audio.chunk import RATE, to_pcm

pytestmark = pytest.mark.server
CALLERS = 4
TURNS = 20
MOST_DIFFERENCE = 0.001
FRAME_SECONDS = 0.02
FRAME_BYTES = 640
SILENCE_BYTES = 2 * RATE * 4
"""Four seconds, for the answer."""
MONITORING = ROOT / "examples" / "monitoring"
needs_prometheus = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")),
    reason="Prometheus is not installed: apt-get install prometheus",
)
OPENMETRICS = "application/openmetrics-text; version=1.0.0"


async def fetched(url: str, **headers: str) -> tuple[int, str, str]:
    """Return the status, the content type and the text of a page."""

    def fetch() -> tuple[int, str, str]:
        try:
            with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=20) as response:
                return response.status, response.headers["Content-Type"], response.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.headers["Content-Type"], error.read().decode()

    return await asyncio.to_thread(fetch)


def test_metrics_come_in_two_formats_and_can_be_off() -> None:
    async def check() -> None:
        async with served_here() as (_, port):
            status, kind, text = await fetched(f"http://127.0.0.1:{port}/metrics")
            assert (status, kind.partition(";")[0]) == (200, "text/plain")
            assert "rejoinder_turn_latency_seconds_count 0.0" in text
            status, kind, text = await fetched(f"http://127.0.0.1:{port}/metrics", Accept=OPENMETRICS)
            assert (status, kind.partition(";")[0]) == (200, "application/openmetrics-text")
            assert text.endswith("# EOF\n")
        async with served_here(metrics=False) as (_, port):
            assert (await fetched(f"http://127.0.0.1:{port}/metrics"))[0] == 404

    asyncio.run(check())


def test_other_machines_need_a_key() -> None:
    async def check() -> None:
        async with served_here(host="0.0.0.0", open_to_all=True) as (_, port):
            status, _, text = await fetched(f"http://127.0.0.1:{port}/metrics")
            assert status == 403
            assert "metrics can be read on this machine only, unless api_keys is set" in text
        async with served_here(api_keys=hashed("rj_key")) as (_, port):
            assert (await fetched(f"http://127.0.0.1:{port}/metrics"))[0] == 401
            status, _, _ = await fetched(f"http://127.0.0.1:{port}/metrics", Authorization="Bearer rj_key")
            assert status == 200
        async with served_here() as (_, port):  # a page of another name that leads here
            assert (await fetched(f"http://127.0.0.1:{port}/metrics", Host="evil.example"))[0] == 403

    asyncio.run(check())


class Gpu(Exception):
    """NVML's functions of one GPU, which reports no utilisation. The class stands for NVMLError."""


NVML = SimpleNamespace(
    NVMLError=Gpu,
    NVML_TEMPERATURE_GPU=0,
    nvmlDeviceGetCount=lambda: 1,
    nvmlDeviceGetHandleByIndex=lambda index: index,
    nvmlMemory_v2=2,
    nvmlDeviceGetMemoryInfo=lambda device, version: SimpleNamespace(used=2 * 2**30, total=80 * 2**30),
    nvmlDeviceGetUtilizationRates=lambda device: SimpleNamespace(gpu=37),
    nvmlDeviceGetTemperature=lambda device, sensor: 54,
)


@asynccontextmanager
async def measured(folder: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Program, int]]:
    """Serve the embedded models, beside a GPU that reports to a stand-in for NVML."""
    monkeypatch.setattr(server_metrics, "open_nvml", lambda: NVML)
    traces = str(folder / "turns.jsonl")
    settings, _ = load({"profile": "cpu-tiny", "log_level": "error", "trace_file": traces})
    need(*(getattr(settings.specs(), role) for role in ROLES))
    failures: list[Exception] = []
    program = Program(settings, lambda name, seconds: None, failures.append)
    running = uvicorn.Server(web(program))
    sock = listen("127.0.0.1", 0)
    task = asyncio.create_task(running.serve(sockets=[sock]))
    try:
        await until(lambda: bool((running.started and program.models) or failures))
        assert not failures
        yield program, sock.getsockname()[1]
    finally:
        running.should_exit = True
        await task


@asynccontextmanager
async def calling(port: int, said: Sequence[bytes]) -> AsyncIterator[None]:
    """Hold a call over raw PCM in which the caller says these recordings, with silence in between."""
    async with connect(f"ws://127.0.0.1:{port}/v1/pcm", proxy=None, compression=None) as socket:

        async def speak() -> None:
            loop = asyncio.get_running_loop()
            due = loop.time()
            for pcm in cycle(said):
                for at in range(0, len(pcm) + SILENCE_BYTES, FRAME_BYTES):
                    await socket.send(pcm[at : at + FRAME_BYTES].ljust(FRAME_BYTES, b"\0"))
                    due += FRAME_SECONDS
                    await asyncio.sleep(max(0.0, due - loop.time()))

        async def listen_() -> None:
            async for _ in socket:
                pass

        tasks = [asyncio.create_task(speak()), asyncio.create_task(listen_())]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


def queries() -> list[str]:
    """Return the queries of the dashboard, with a range that fits a short test."""
    dashboard = json.loads((MONITORING / "grafana-dashboard.json").read_text())
    found = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return [query.replace("$__rate_interval", "30s") for query in found]


@pytest.mark.realtime
@needs_prometheus
def test_prometheus_scrapes_a_server_under_four_callers_and_fills_the_dashboard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = recordings("assistant_utterances", 4 * CALLERS, seconds=4.0)
    said = [to_pcm(recording.load(RATE)) for recording in found]

    async def check() -> None:
        async with measured(tmp_path, monkeypatch) as (program, port), AsyncExitStack() as stack:
            own = await stack.enter_async_context(prometheus(tmp_path, port))
            async with AsyncExitStack() as calls:
                for number in range(CALLERS):
                    await calls.enter_async_context(calling(port, said[number::CALLERS]))
                await answered(own, f'rejoinder_sessions{{wire="pcm"}} == {CALLERS}')
                await answered(own, f"rejoinder_turn_latency_seconds_count >= {TURNS}")
                for query in queries():
                    await answered(own, query)
            await answered(own, 'rejoinder_sessions{wire="pcm"} == 0')
            await answered(own, "rejoinder:turn_latency_seconds:p95_5m > 0")
            for role in ("stt", "turn", "tts"):
                await answered(own, f"rejoinder:{role}_realtime_factor:ratio_rate5m > 0")
            page = (await fetched(f"http://127.0.0.1:{port}/metrics"))[2]
            assert promtool("check", "metrics", given=page) == ""
            assert program.telemetry.metrics is not None
            assert program.telemetry.metrics.meters.registry.get_sample_value(
                "rejoinder_gpu_memory_bytes", {"gpu": "0"}
            )
            check_sums(page, (tmp_path / "turns.jsonl").read_text())

    asyncio.run(check())


def check_sums(page: str, turns: str) -> None:
    """Fail where the parts of a turn do not add up to its latency, in a trace or in the metrics."""
    samples = [sample for family in text_string_to_metric_families(page) for sample in family.samples]
    parts = sum(one.value for one in samples if one.name == "rejoinder_turn_part_seconds_sum")
    named = {one.name: one.value for one in samples if one.name.startswith("rejoinder_turn_latency_seconds_")}
    total, count = named["rejoinder_turn_latency_seconds_sum"], named["rejoinder_turn_latency_seconds_count"]
    assert count >= TURNS and abs(parts - total) < MOST_DIFFERENCE
    traces = [json.loads(line) for line in turns.splitlines()]
    waits = [
        (one["marks"]["audio_sent"] - one["marks"]["speech_ended"], sum(part["ms"] for part in one["budget"]))
        for one in traces
        if one["budget"]
    ]
    assert len(waits) == count
    assert all(abs(wait - summed) < 1000.0 * MOST_DIFFERENCE for wait, summed in waits)
    assert abs(sum(wait for wait, _ in waits) / 1000.0 - total) < MOST_DIFFERENCE * count


@asynccontextmanager
async def prometheus(folder: Path, port: int) -> AsyncIterator[int]:
    """Run Prometheus with the configuration and the rules of the examples; yields its port."""
    config, own = folder / "prometheus.yml", unused_port()
    text = (MONITORING / "prometheus.yml").read_text()
    assert "127.0.0.1:8080" in text
    config.write_text(text.replace("127.0.0.1:8080", f"127.0.0.1:{port}").replace("15s", "1s"))
    (folder / "rejoinder.rules.yml").write_text((MONITORING / "rejoinder.rules.yml").read_text())
    process = await asyncio.create_subprocess_exec(
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{own}",
        "--log.level=error",
    )
    try:
        yield own
    finally:
        process.terminate()
        await process.wait()


async def answered(port: int, query: str) -> list[Any]:
    """Return the series of a query, once Prometheus has any."""
    url = f"http://127.0.0.1:{port}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
    status, text = 0, ""
    try:
        async with asyncio.timeout(2 * PATIENCE):
            while True:
                try:
                    status, _, text = await fetched(url)
                    found = json.loads(text)["data"]["result"] if status == 200 else []
                    assert status in (200, 503), text
                    if found and any(one["value"][1] != "NaN" for one in found):
                        return list(found)
                except urllib.error.URLError:  # it starts
                    pass
                await asyncio.sleep(0.3)
    except TimeoutError:
        pytest.fail(f"no data for {query}: {status} {text[:300]}")


@needs_prometheus
def test_promtool_accepts_the_rules_and_the_configuration() -> None:
    for check in (["rules", "rejoinder.rules.yml"], ["config", "prometheus.yml"]):
        assert "SUCCESS" in promtool("check", *check)


def promtool(*arguments: str, given: str = "") -> str:
    """Run promtool in the folder of the rules, and return what it prints; fails where it fails."""
    ended = subprocess.run(
        ["promtool", *arguments], input=given, cwd=MONITORING, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr
