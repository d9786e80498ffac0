"""The device that models run on, and the settings of their runtimes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rejoinder.models.llm.failover.hedge_budget import HEDGE_SHARE
from rejoinder.models.llm.model_settings import ModelSettings
from rejoinder.models.llm.routing.budget import DaySpending
from rejoinder.models.llm.routing.settings import NO_OPENINGS, OpeningSettings, RouteSettings
from rejoinder.models.llm.vllm.settings import VllmSettings

VLLM_DEFAULTS = VllmSettings()
"""No setting given: vLLM chooses all of them."""


@dataclass(frozen=True, slots=True)
class Placement:
    """Device and runtime settings of adapters.

    cuda: run Whisper on the first NVIDIA GPU. vllm: settings of vLLM's engine. models: settings of language
    models, by the name that stands for the model in a list. hedge: share of the answers for which a late
    model is waited for while the next one is asked. busy_llm: the language model that is asked first while
    the machine is busy; not in a variant, nor in place of a model that is opened alone. routes: rules that
    choose which model of a list is asked first. day_budget: what a day may cost, for the rules; 0 for none.
    spending: the cost of today, which all lists of a server share; None for a list alone. openings: what is
    said while an answer is late.
    """

    cuda: bool = False
    vllm: VllmSettings = VLLM_DEFAULTS
    models: Mapping[str, ModelSettings] = field(default_factory=dict)
    hedge: float = HEDGE_SHARE
    busy_llm: str = ""
    routes: Sequence[RouteSettings] = ()
    day_budget: float = 0.0
    spending: DaySpending | None = None
    openings: OpeningSettings = NO_OPENINGS


HERE: Placement = Placement()
"""Run everything on the CPU."""
