"""Simulated callers in virtual time: ``from rejoinder.simulate import Caller``."""

from rejoinder.agent.simulate.actor import NothingHeard
from rejoinder.agent.simulate.call import Call
from rejoinder.agent.simulate.caller import Caller
from rejoinder.agent.simulate.calls import random_caller
from rejoinder.agent.simulate.invariants import check, hang_ups, interruptions
from rejoinder.agent.simulate.judging import Verdict, judge
from rejoinder.agent.simulate.line import Line
from rejoinder.agent.simulate.scenario import Talk
from rejoinder.agent.simulate.tool_use import ToolUse
from rejoinder.agent.simulate.virtual_clock import Deadlock, Leak
from rejoinder.models.scripted import ScriptedLlm

__all__ = [
    "Call",
    "Caller",
    "Deadlock",
    "Leak",
    "Line",
    "NothingHeard",
    "ScriptedLlm",
    "Talk",
    "ToolUse",
    "Verdict",
    "check",
    "hang_ups",
    "interruptions",
    "judge",
    "random_caller",
]
