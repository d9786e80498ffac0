"""The number of threads per engine, planned from the number of available cores.

Threads that spin at barriers are the main latency problem of a pipeline on few cores. Measured: with two
threads beside another busy thread, llama.cpp falls from 130 tokens per second to 1; onnxruntime runs small
models half as fast on two threads as on one; idle OpenMP workers use the core that the next stage needs.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from threadpoolctl import threadpool_limits

QUIET_ENVIRONMENT = {"OMP_WAIT_POLICY": "passive", "KMP_BLOCKTIME": "0"}
"""Stops idle OpenMP workers from spinning. It takes effect only if set before the runtimes are loaded."""
CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")
"""The limit of processor time, as a container sees it: microseconds, and the period for which they are."""
BLAS_ENVIRONMENT = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
"""Variables with which an operator sets the number of BLAS threads of numpy."""


@dataclass(frozen=True, slots=True)
class Threads:
    """Threads per engine. VAD and the turn model are small: a second thread slows them down."""

    stt: int
    llm: int
    tts: int
    small: int = 1


def cores() -> int:
    """Return the number of cores that this process may use, also in a container with a limit."""
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min(found, limited_cores())


def limited_cores(file: Path = CPU_LIMIT) -> int:
    """Return the whole cores that a container's limit of processor time allows, at least 1."""
    try:
        quota, period = file.read_text().split()
        return max(1, int(quota) // int(period))
    except (OSError, ValueError):  # no control groups of version 2; the quota is "max" without a limit
        return sys.maxsize


def plan(available: int | None = None, cuda: bool = False) -> Threads:
    """Return the threads per engine for ``available`` cores, by default the cores of this process.

    cuda: STT and LLM run on a GPU, so each gets the one thread that feeds the GPU.
    """
    available = available or cores()
    most = 1 if cuda else max(1, available // 2)
    return Threads(stt=most, llm=most, tts=min(4, available))


def quiet() -> None:
    """Stop idle threads of native runtimes from spinning. Call it before any model is loaded.

    It applies to the whole process and keeps variables that are already set. numpy gets one BLAS thread: its
    matrices are small here, and a second, spinning thread took a tenth of a core from the models of four
    calls.
    """
    for name, value in QUIET_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if not any(name in os.environ for name in BLAS_ENVIRONMENT):
        threadpool_limits(1, user_api="blas")
