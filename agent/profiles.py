"""Presets of settings by the size of the machine; any other source of a setting overrides them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rejoinder.agent.machine import gpu_memory, memory
from rejoinder.models.registry import check
from rejoinder.models.specs import ROLES
from rejoinder.models.threads import cores
from rejoinder.pipeline.errors import ModelError

AUTO = "auto"
"""The name that chooses a profile by the machine."""
SMALL: dict[str, Any] = {
    "turn": "smart-turn",
    "stt": "whisper:tiny.en",
    "llm": "ort:smollm2-135m-instruct",
    "tts": "piper:en_US-joe-medium",
    "device": "cpu",
    "max_sessions": 16,
}
"""The settings of the smallest profile; the others change some of them."""
PROFILES: dict[str, dict[str, Any]] = {
    "cpu-small": SMALL,
    "cpu": {**SMALL, "stt": "whisper:base", "max_sessions": 32},
    # It gets four threads of eight cores. With the one of two cores it would keep the caller waiting.
    "cpu-large": {**SMALL, "stt": "whisper:base", "llm": "llama:qwen3-0.6b", "max_sessions": 16},
    # Of 24 GB, weights take 16 and the cache about 2: 15,000 tokens of 144 KiB each.
    "gpu": {
        **SMALL,
        "stt": "whisper:large-v3-turbo",
        "llm": "vllm:Qwen/Qwen3-8B",
        "device": "cuda",
        "max_sessions": 64,
        "vllm": {"gpu_memory_utilization": 0.8, "max_model_len": 8192, "max_num_seqs": 64},
    },
    # Each token uses 3 of the model's 30 billion parameters: it answers as fast as the 8B model.
    "gpu-large": {
        **SMALL,
        "stt": "whisper:large-v3",
        "llm": "vllm:Qwen/Qwen3-30B-A3B-Instruct-2507",
        "device": "cuda",
        "max_sessions": 256,
        "vllm": {"gpu_memory_utilization": 0.85, "max_model_len": 16384, "max_num_seqs": 256},
    },
}
"""The presets by name, the smallest first. vLLM leaves GPU memory for the recogniser and the voice."""
LEAST_CORES = {"cpu": 8, "cpu-large": 8}
"""Fewest cores of a profile; 1 if not listed."""
LEAST_GIB = {"cpu-large": 6.0}
"""Least memory of a profile, in GiB; any amount if not listed."""
LEAST_GPU_GIB = {"gpu": 22.0, "gpu-large": 78.0}
"""Least GPU memory of a profile, in GiB. A GPU reports slightly less than its nominal size."""


def fitting(available: int, gpu_gib: float, gib: float) -> list[str]:
    """Return the profiles that fit a machine, the largest first.

    available: number of cores. gpu_gib: memory of the first GPU in GiB, 0 for none. gib: memory in GiB.
    """
    return [
        name
        for name in reversed(PROFILES)
        if available >= LEAST_CORES.get(name, 1)
        and gpu_gib >= LEAST_GPU_GIB.get(name, 0.0)
        and gib >= LEAST_GIB.get(name, 0.0)
    ]


def lacking(settings: Mapping[str, Any]) -> list[str]:
    """Return the reasons why the models of a profile cannot be opened here; opens none of them."""
    found = []
    for kind in ROLES:
        try:
            if spec := settings.get(kind):
                check(kind, spec)
        except ModelError as error:
            found.append(str(error))
    return found


def chosen() -> str:
    """Return the largest profile that fits this machine and has its packages and weights installed."""
    large_enough = fitting(cores(), gpu_memory() / 2**30, memory() / 2**30)
    return next((name for name in large_enough if not lacking(PROFILES[name])), "cpu-small")
