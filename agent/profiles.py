"""Presets of settings by the size of the machine; any other source of a setting overrides them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from rejoinder.agent.machine import gpu_memory, memory
from rejoinder.models.registry import check
from rejoinder.models.specs import LANGUAGE_MODELS, ROLES
from rejoinder.models.threads import cores
from rejoinder.pipeline.errors import ModelError

AUTO = "auto"
"""The name that chooses a profile by the machine."""
TINY: dict[str, Any] = {
    "turn": "smart-turn",
    "stt": "whisper:tiny.en",
    "llm": LANGUAGE_MODELS["tiny"],
    "tts": "piper:en_US-joe-medium",
    "device": "cpu",
    "max_sessions": 16,
}
"""The settings of the smallest profile; the others change some of them."""
SMALL = {**TINY, "llm": LANGUAGE_MODELS["small"]}
"""The settings of the profile with the default language model."""
PROFILES: dict[str, dict[str, Any]] = {
    "cpu-tiny": TINY,
    "cpu-small": SMALL,
    "cpu": {**SMALL, "stt": "whisper:base", "max_sessions": 32},
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
LEAST_CORES = {"cpu-small": 2, "cpu": 8}
"""Fewest cores of a profile; 1 if not listed."""
LEAST_GIB = {"cpu-small": 3.0, "cpu": 3.0}
"""Least memory of a profile, in GiB; any if not listed."""
LEAST_GPU_GIB = {"gpu": 22.0, "gpu-large": 78.0}
"""Least GPU memory of a profile, in GiB. A GPU reports slightly less than its nominal size."""


def fitting(available: int, gib: float, gpu_gib: float) -> list[str]:
    """Return the profiles that fit a machine, the largest first.

    available: number of cores. gib: memory in GiB, 0 if unknown. gpu_gib: memory of the first GPU in GiB, 0
    for none.
    """
    return [
        name
        for name in reversed(PROFILES)
        if available >= LEAST_CORES.get(name, 1)
        and (gib or math.inf) >= LEAST_GIB.get(name, 0.0)
        and gpu_gib >= LEAST_GPU_GIB.get(name, 0.0)
    ]


def fitting_here() -> list[str]:
    """Return the profiles that fit this machine, the largest first."""
    return fitting(cores(), memory() / 2**30, gpu_memory() / 2**30)


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


def usual(fits: Sequence[str]) -> str:
    """Return the profile whose weights are fetched by default, for a machine that these profiles fit."""
    return "cpu-small" if "cpu-small" in fits else "cpu-tiny"


def chosen() -> str:
    """Return the largest profile that fits this machine and has its packages and weights installed."""
    fits = fitting_here()
    return next((name for name in fits if not lacking(PROFILES[name])), usual(fits))
