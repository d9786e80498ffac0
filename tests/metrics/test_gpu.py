"""GPUs by NVML. No machine of the tests has one, so these functions stand for NVML's (nvidia-ml-py 13)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from support.serving import PATIENCE

from rejoinder.agent.metrics import gpu
from rejoinder.agent.metrics.measures import Measurement
from rejoinder.agent.metrics.meters import Meters


def nvml(**functions: Any) -> Any:
    """Return NVML's functions for two GPUs: the second one fell off the bus, as a failing one does."""

    def handle(index: int) -> int:
        if index == 1:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return index

    usual = {
        "NVMLError": pynvml.NVMLError,
        "NVML_TEMPERATURE_GPU": pynvml.NVML_TEMPERATURE_GPU,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": handle,
        "nvmlMemory_v2": 2,
        "nvmlDeviceGetMemoryInfo": lambda device, version: SimpleNamespace(used=2.0, total=8.0),
        "nvmlDeviceGetUtilizationRates": lambda device: SimpleNamespace(gpu=37),
        "nvmlDeviceGetTemperature": lambda device, sensor: 54,
    }
    return SimpleNamespace(**{**usual, **functions})


def test_reads_each_gpu_and_leaves_out_one_that_fails() -> None:
    assert gpu.read(nvml()) == [
        Measurement("gpu_memory_used_bytes", 2.0, ("0",)),
        Measurement("gpu_memory_bytes", 8.0, ("0",)),
        Measurement("gpu_utilization_ratio", 0.37, ("0",)),
        Measurement("gpu_temperature_celsius", 54.0, ("0",)),
    ]


def test_leaves_out_what_a_gpu_does_not_report() -> None:
    def unsupported(device: int) -> None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    found = {one.metric for one in gpu.read(nvml(nvmlDeviceGetUtilizationRates=unsupported))}
    assert found == {"gpu_memory_used_bytes", "gpu_memory_bytes", "gpu_temperature_celsius"}


def test_gpu_that_fails_loses_its_series_and_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    meters = Meters()
    counted: list[int | None] = [1, None, None, 0, 1]
    seen: list[float | None] = []

    def count() -> int:
        # What there is now comes from the counts before.
        seen.append(meters.registry.get_sample_value("rejoinder_gpu_memory_used_bytes", {"gpu": "0"}))
        number = counted.pop(0) if counted else 1
        if number is None:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)
        return number

    async def main() -> None:
        async with asyncio.timeout(PATIENCE):
            measuring = asyncio.create_task(gpu.measure_gpus(meters, nvml(nvmlDeviceGetCount=count)))
            while len(seen) < 6 and not measuring.done():  # noqa: ASYNC110 - a thread reads
                await asyncio.sleep(0.01)
            measuring.cancel()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gpu, "GPU_INTERVAL_SECONDS", 0.01)
        asyncio.run(main())
    assert seen[:6] == [None, 2.0, None, None, None, 2.0]
    assert [record.levelname for record in caplog.records] == ["WARNING"], "two failures in a row are one"


def test_without_a_driver_nothing_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVML itself says that its library is missing: a machine with a driver skips nothing but this."""
    missing = pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)

    def fail() -> None:
        raise missing

    monkeypatch.setattr(pynvml, "nvmlInit", fail)
    assert gpu.open_nvml() is None
    monkeypatch.setattr(gpu, "find_spec", lambda name: None)
    assert gpu.open_nvml() is None
