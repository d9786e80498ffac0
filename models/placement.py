"""Where models run, and what their runtimes are told."""

from __future__ import annotations

from dataclasses import dataclass

from rejoinder.models.llm.vllm.settings import VllmSettings

UNTOLD = VllmSettings()


@dataclass(frozen=True, slots=True)
class Placement:
    """What adapters are told besides their threads.

    cuda: the recogniser and Piper run on the first NVIDIA GPU. vllm: settings of its engine.
    """

    cuda: bool = False
    vllm: VllmSettings = UNTOLD


HERE = Placement()
"""On the processor."""
