"""/metrics of a running server: who may read it, and that Prometheus itself can."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvicorn
from support.paths import ROOT
from support.servers.in_process import served_here, until
from support.serving import LINE, PATIENCE, SCRIPTED, unused_port
from websockets.asyncio.client import connect

from rejoinder.agent.config import load
from rejoinder.agent.metrics import server_metrics
from rejoinder.agent.server.keys import hashed
from rejoinder.agent.server.server import Server as Program
from rejoinder.agent.server.serving import listen, web
from rejoinder.agent.simulate.scenario import SILENT_CHUNK, SPEECH_CHUNK
from rejoinder.models.scripted import (
    ScriptedLlm,
    ScriptedStt,
    ScriptedSttStream,
    ScriptedTts,
    ScriptedTurnModel,
    ScriptedVad,
)
from rejoinder.pipeline import Models, Transcript
from rejoinder.pipeline.engines.engine import Engine
from rejoinder.pipeline.engines.load_shedding import LoadShedder

pytestmark = pytest.mark.server
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


class EngineStt(ScriptedStt):
    """The scripted recogniser behind a real engine, which takes 10 ms for each step."""

    def __init__(self) -> None:
        super().__init__(["what is the weather"], seconds=0.0)
        self.engine: Engine[int, int] = Engine("recogniser", self._step, max_batch=4)

    def _step(self, batch: Sequence[int]) -> Sequence[int]:
        time.sleep(0.01)
        return batch

    def stream(self) -> ScriptedSttStream:
        return EngineStream(self)


class EngineStream(ScriptedSttStream):
    """The state of one session."""

    async def transcribe(self, is_final: bool) -> Transcript:
        stt = self._stt
        assert isinstance(stt, EngineStt)
        await stt.engine.run(self._fed)
        return await super().transcribe(is_final)


class EngineTts(ScriptedTts):
    """The scripted voice behind a real engine."""

    def __init__(self) -> None:
        super().__init__()
        self.engine: Engine[str, str] = Engine("voice", lambda batch: batch)

    async def speak(self, text: str) -> Any:
        await self.engine.run(text)
        async for chunk in super().speak(text):
            yield chunk


class Gpu(Exception):
    """NVML's functions of one GPU, which reports no utilisation. The class stands for NVMLError."""


NVML = SimpleNamespace(
    NVMLError=Gpu,
    NVML_TEMPERATURE_GPU=0,
    nvmlDeviceGetCount=lambda: 1,
    nvmlDeviceGetHandleByIndex=lambda index: index,
    nvmlDeviceGetMemoryInfo=lambda device: SimpleNamespace(used=2 * 2**30, total=80 * 2**30),
    nvmlDeviceGetUtilizationRates=lambda device: SimpleNamespace(gpu=37),
    nvmlDeviceGetTemperature=lambda device, sensor: 54,
)


@asynccontextmanager
async def measured(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[Program, int]]:
    """Serve models with engines of their own, beside a GPU."""
    monkeypatch.setattr(server_metrics, "open_nvml", lambda: NVML)
    stt, tts = EngineStt(), EngineTts()
    shedder = LoadShedder([stt.engine, tts.engine])
    models = Models(ScriptedVad(), stt, ScriptedLlm([LINE]), tts, ScriptedTurnModel(), shedder)
    settings, _ = load({**SCRIPTED, "log_level": "error", "resume_s": 0.5})
    program = Program(settings, lambda name, seconds: None, lambda error: None, models=models)
    running = uvicorn.Server(web(program))
    sock = listen("127.0.0.1", 0)
    task = asyncio.create_task(running.serve(sockets=[sock]))
    try:
        await until(lambda: running.started and program.models is not None)
        yield program, sock.getsockname()[1]
    finally:
        running.should_exit = True
        await task
        stt.engine.close()
        tts.engine.close()


@asynccontextmanager
async def calling(port: int) -> AsyncIterator[None]:
    """Hold a call over raw PCM in which the caller asks for 0.6 of every 3 seconds."""
    async with connect(f"ws://127.0.0.1:{port}/v1/pcm", proxy=None, compression=None) as socket:

        async def speak() -> None:
            loop = asyncio.get_running_loop()
            began, tick = loop.time(), 0
            while True:
                await asyncio.sleep(max(0.0, began + 0.02 * tick - loop.time()))
                await socket.send(SPEECH_CHUNK if 20 <= tick % 150 < 50 else SILENT_CHUNK)
                tick += 1

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


@needs_prometheus
def test_prometheus_scrapes_a_server_and_fills_the_dashboard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def check() -> None:
        async with measured(monkeypatch) as (program, port):
            config, own = tmp_path / "prometheus.yml", unused_port()
            text = (MONITORING / "prometheus.yml").read_text()
            assert "127.0.0.1:8080" in text
            config.write_text(text.replace("127.0.0.1:8080", f"127.0.0.1:{port}").replace("15s", "1s"))
            (tmp_path / "rejoinder.rules.yml").write_text((MONITORING / "rejoinder.rules.yml").read_text())
            prometheus = await asyncio.create_subprocess_exec(
                "prometheus",
                f"--config.file={config}",
                f"--storage.tsdb.path={tmp_path / 'data'}",
                f"--web.listen-address=127.0.0.1:{own}",
                "--log.level=error",
            )
            try:
                async with calling(port):
                    await answered(own, "rejoinder_turn_latency_seconds_count >= 2")
                    await answered(own, 'rejoinder_sessions{wire="pcm"} == 1')
                    for query in queries():
                        await answered(own, query)
                await answered(own, 'rejoinder_sessions{wire="pcm"} == 0')
                await answered(own, "rejoinder:turn_latency_seconds:p95_5m > 0")
                await answered(own, "rejoinder:stt_realtime_factor:ratio_rate5m > 0")
            finally:
                prometheus.terminate()
                await prometheus.wait()
            page = (await fetched(f"http://127.0.0.1:{port}/metrics"))[2]
            assert promtool("check", "metrics", given=page) == ""
            read = program.telemetry.metrics.meters.registry.get_sample_value
            assert read("rejoinder_gpu_memory_bytes", {"gpu": "0"}) == 80 * 2**30
            assert program.calls == set()

    asyncio.run(check())


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
