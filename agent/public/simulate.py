"""Simulated callers in virtual time: ``from rejoinder.simulate import Caller``.

``simulate`` needs the extra ``server``, as agents do; the others need numpy only.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rejoinder.agent.simulate.actor import NothingHeard
from rejoinder.agent.simulate.call import Call
from rejoinder.agent.simulate.caller import Caller
from rejoinder.agent.simulate.calls import random_caller
from rejoinder.agent.simulate.invariants import check, hang_ups, interruptions
from rejoinder.agent.simulate.line import Line
from rejoinder.agent.simulate.scenario import Talk
from rejoinder.agent.simulate.virtual_clock import Deadlock, Leak, run
from rejoinder.models.scripted import ScriptedLlm

if TYPE_CHECKING:
    from rejoinder.agent.simulate.simulated import NotExpected as NotExpected
    from rejoinder.agent.simulate.simulated import SimulatedCaller as SimulatedCaller
    from rejoinder.agent.simulate.simulated import simulate as simulate

__all__ = [
    "Call",
    "Caller",
    "Deadlock",
    "Leak",
    "Line",
    "NotExpected",
    "NothingHeard",
    "ScriptedLlm",
    "SimulatedCaller",
    "Talk",
    "check",
    "hang_ups",
    "interruptions",
    "random_caller",
    "run",
    "simulate",
]

OF_AGENTS = ("NotExpected", "SimulatedCaller", "simulate")
"""The names that need an agent."""


def __getattr__(name: str) -> Any:
    """Return a name of ``OF_AGENTS``. Raises AttributeError for others, NotInstalled without the extra."""
    if name not in OF_AGENTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rejoinder.models.hints import needing

    with needing("server", f"rejoinder.simulate.{name}"):
        return getattr(import_module("rejoinder.agent.simulate.simulated"), name)
