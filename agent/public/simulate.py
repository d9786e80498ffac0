"""Simulated callers in virtual time: ``from rejoinder.simulate import Caller``."""

from rejoinder.agent.simulate.callers import Call, Caller, Line, NothingHeard
from rejoinder.agent.simulate.invariants import check, hang_ups, interruptions
from rejoinder.models.scripted import ScriptedLlm

__all__ = ["Call", "Caller", "Line", "NothingHeard", "ScriptedLlm", "check", "hang_ups", "interruptions"]
