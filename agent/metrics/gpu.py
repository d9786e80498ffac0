"""Memory, utilisation and temperature of NVIDIA's GPUs, by NVML."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from rejoinder.agent.metrics.measures import Measurement
from rejoinder.agent.metrics.meters import Meters

log = logging.getLogger(__name__)

GPU_INTERVAL_SECONDS = 5.0
"""Interval between two readings of the GPUs."""
GPUS = 16
"""Most GPUs that are measured: one machine has at most 16."""


def open_nvml() -> ModuleType | None:
    """Return ``pynvml``, ready to read; None without its package, without a driver, or without a GPU.

    Package nvidia-ml-py: https://docs.nvidia.com/deploy/nvml-api/.
    """
    if find_spec("pynvml") is None:
        return None
    nvml = import_module("pynvml")
    try:
        nvml.nvmlInit()
        if nvml.nvmlDeviceGetCount():
            return nvml
        nvml.nvmlShutdown()
    except nvml.NVMLError as error:
        log.debug("no GPU is measured: %s", error)
    return None


def read(nvml: ModuleType) -> list[Measurement]:
    """Return the state of all GPUs. What a GPU does not report is left out: some report no utilisation."""
    measured = []
    for index in range(min(nvml.nvmlDeviceGetCount(), GPUS)):
        gpu = (str(index),)
        with suppress(nvml.NVMLError):
            device = nvml.nvmlDeviceGetHandleByIndex(index)
            with suppress(nvml.NVMLError):
                memory = _memory(nvml, device)
                measured.append(Measurement("gpu_memory_used_bytes", float(memory.used), gpu))
                measured.append(Measurement("gpu_memory_bytes", float(memory.total), gpu))
            with suppress(nvml.NVMLError):
                busy = nvml.nvmlDeviceGetUtilizationRates(device).gpu
                measured.append(Measurement("gpu_utilization_ratio", busy / 100.0, gpu))
            with suppress(nvml.NVMLError):
                warmth = nvml.nvmlDeviceGetTemperature(device, nvml.NVML_TEMPERATURE_GPU)
                measured.append(Measurement("gpu_temperature_celsius", float(warmth), gpu))
    return measured


def _memory(nvml: ModuleType, device: object) -> Any:
    """Return a GPU's memory. The second version does not count what the driver reserves as used."""
    try:
        return nvml.nvmlDeviceGetMemoryInfo(device, nvml.nvmlMemory_v2)
    except nvml.NVMLError:  # a driver before 510
        return nvml.nvmlDeviceGetMemoryInfo(device)


async def measure_gpus(meters: Meters, nvml: ModuleType | None) -> None:
    """Read the GPUs in a thread, until cancelled; return at once without any.

    What a GPU does not report any more is removed: its last value would look like a present one.
    Cancelling lets a reading end in its thread.
    """
    failed = False
    while nvml is not None:
        measured: list[Measurement] = []
        try:
            measured = await asyncio.to_thread(read, nvml)
            failed = False
        except nvml.NVMLError as error:  # the driver is being replaced, or the last GPU is lost
            if not failed:
                log.warning("the GPUs cannot be read: %s; trying again every few seconds", error)
            failed = True
        meters.replace_gauges(measured)
        await asyncio.sleep(GPU_INTERVAL_SECONDS)
