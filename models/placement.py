"""The device that models run on, and the settings of their runtimes."""

from __future__ import annotations

from dataclasses import dataclass

from rejoinder.models.llm.vllm.settings import VllmSettings

VLLM_DEFAULTS = VllmSettings()
"""No setting given: vLLM chooses all of them."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Device and runtime settings of adapters.

    cuda: run Whisper on the first NVIDIA GPU. vllm: settings of vLLM's engine.
    """

    cuda: bool = False
    vllm: VllmSettings = VLLM_DEFAULTS


HERE = Placement()
"""Run everything on the CPU."""
