"""How many threads each engine gets: decided in this one place, from the cores there are.

Threads that spin at barriers are the first latency bug of a pipeline on few cores: with two threads beside
another busy one, llama.cpp was seen to fall from 130 tokens a second to 1, onnxruntime's small models ran
twice as slow on two threads as on one, and OpenMP workers burn the core that the next stage waits for.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from threadpoolctl import threadpool_limits

QUIET_ENVIRONMENT = {"OMP_WAIT_POLICY": "passive", "KMP_BLOCKTIME": "0"}
"""Keeps OpenMP's idle workers from spinning; only works when set before the runtimes are loaded."""
BLAS_ENVIRONMENT = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
"""By these somebody says how many threads numpy's matrices get."""


@dataclass(frozen=True, slots=True)
class Threads:
    """Threads per engine. VAD and the turn model are so small that more than one slows them down."""

    stt: int
    llm: int
    tts: int
    small: int = 1


def cores() -> int:
    """Return the cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def plan(available: int | None = None, cuda: bool = False) -> Threads:
    """Return the threads for a number of cores, by default those of this process.

    cuda: the recogniser, the language model and the voice run on a GPU, and a thread each feeds it.
    """
    if cuda:
        return Threads(stt=1, llm=1, tts=1)
    available = available or cores()
    return Threads(stt=max(1, available // 2), llm=max(1, available // 2), tts=min(4, available))


def quiet() -> None:
    """Keep idle threads of native runtimes from spinning; call it before any model is loaded.

    It is for the whole process, and leaves alone what somebody has set. numpy's matrices are small here, and
    a second thread that spins between them took a tenth of a core from four callers' models.
    """
    for name, value in QUIET_ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    if not any(name in os.environ for name in BLAS_ENVIRONMENT):
        threadpool_limits(1, user_api="blas")
