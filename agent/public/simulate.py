"""Simulated callers in virtual time: ``from rejoinder.simulate import Caller``."""

from rejoinder.agent.simulate.callers import Call, Caller, Line, NothingHeard
from rejoinder.agent.simulate.invariants import check

__all__ = ["Call", "Caller", "Line", "NothingHeard", "check"]
