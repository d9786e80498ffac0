"""Settings that fit together, by the size of the machine; whatever is set anywhere else wins over them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rejoinder.agent.machine import gpu_memory
from rejoinder.models.registry import ROLES, check
from rejoinder.models.threads import cores
from rejoinder.pipeline.errors import ModelError

AUTO = "auto"
SMALL: dict[str, Any] = {
    "turn": "smart-turn",
    "stt": "whisper:tiny.en",
    "llm": "ort:smollm2-135m-instruct",
    "tts": "piper:en_US-joe-medium",
    "device": "cpu",
    "max_sessions": 16,
}
PROFILES: dict[str, dict[str, Any]] = {
    "cpu-small": SMALL,
    "cpu": {**SMALL, "stt": "whisper:base", "max_sessions": 32},
    # Of 24 GB, 16 are weights and some 2 the cache: 15,000 tokens, of 144 KiB each.
    "gpu": {
        **SMALL,
        "stt": "whisper:large-v3-turbo",
        "llm": "vllm:Qwen/Qwen3-8B",
        "device": "cuda",
        "max_sessions": 64,
        "vllm": {"gpu_memory_utilization": 0.8, "max_model_len": 8192, "max_num_seqs": 64},
    },
    # 3 of its 30 billion parameters take part in a token: it answers as soon as the small one.
    "gpu-large": {
        **SMALL,
        "stt": "whisper:large-v3",
        "llm": "vllm:Qwen/Qwen3-30B-A3B-Instruct-2507",
        "device": "cuda",
        "max_sessions": 256,
        "vllm": {"gpu_memory_utilization": 0.85, "max_model_len": 16384, "max_num_seqs": 256},
    },
}
"""By name, the smallest first. What vLLM's share leaves of the GPU is for the recogniser and the voice."""
LEAST_CORES = {"cpu": 8}
LEAST_GPU_GIB = {"gpu": 22.0, "gpu-large": 78.0}
"""A GPU says a little less than it is sold with."""


def fitting(available: int, gpu_gib: float) -> list[str]:
    """Return the profiles that a machine is large enough for, the largest first.

    available: cores. gpu_gib: memory of its first GPU, 0 for none.
    """
    return [
        name
        for name in reversed(PROFILES)
        if available >= LEAST_CORES.get(name, 1) and gpu_gib >= LEAST_GPU_GIB.get(name, 0.0)
    ]


def lacking(settings: Mapping[str, Any]) -> list[str]:
    """Return what keeps the models of a profile from being opened here, without opening one."""
    found = []
    for kind in ROLES:
        try:
            if spec := settings.get(kind):
                check(kind, spec)
        except ModelError as error:
            found.append(str(error))
    return found


def chosen() -> str:
    """Return the largest profile that fits this machine and whose packages and weights are here."""
    large_enough = fitting(cores(), gpu_memory() / 2**30)
    return next((name for name in large_enough if not lacking(PROFILES[name])), "cpu-small")
