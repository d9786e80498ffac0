"""The device that models run on, and the settings of their runtimes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from rejoinder.models.llm.routing.budget import DaySpending
from rejoinder.models.llm.routing.settings import NO_ROUTING, Routing
from rejoinder.models.llm.settings import ModelSettings
from rejoinder.models.llm.vllm.settings import VllmSettings

VLLM_DEFAULTS = VllmSettings()
"""No setting given: vLLM chooses all of them."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Device and runtime settings of adapters.

    cuda: run Whisper and Piper on the first NVIDIA GPU. vllm: settings of vLLM's engine. models: settings of
    language models, by the name that stands for the model in a list. hedge: whether a late model is waited
    for while the next one is asked. routing: which model answers which question.
    spending: what counts against the day's budget, for all sets of models together.
    """

    cuda: bool = False
    vllm: VllmSettings = VLLM_DEFAULTS
    models: Mapping[str, ModelSettings] = field(default_factory=dict)
    hedge: bool = True
    routing: Routing = NO_ROUTING
    spending: DaySpending = field(default_factory=DaySpending, compare=False)


HERE = Placement()
"""Run everything on the CPU."""
