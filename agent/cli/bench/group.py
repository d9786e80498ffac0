"""The group of benches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rejoinder.agent.cli.commands import LazyGroup

BENCHES = {
    "load": "Measure latency with several callers at the same time.",
    "turns": "Measure how often a pause is taken for the end of a turn.",
    "bargein": "Measure how soon the agent stops for an interruption.",
    "interaction": "Measure how the agent takes turns in whole calls.",
    "speakers": "Measure which voices take the floor: the caller's, or others.",
    "heard": "Check which words count as heard when a reply is cut.",
    "echo": "Measure how the agent handles the echo of its own voice.",
    "answered": "Measure who is taken to have answered an outgoing call.",
    "stt": "Compare the streaming recogniser with faster-whisper.",
    "brains": "Measure how fast language models of several sizes answer.",
    "cache": "Measure which questions share an answer, and the time saved.",
    "routing": "Measure the cost and the latency of rules and openings.",
    "tools": "Measure how often a language model calls the right tool.",
    "guard": "Measure the time of a guard's rules, and what they notice.",
    "warming": "Measure what sending a prompt ahead saves.",
    "reuse": "Show how much of each prompt is in the KV cache.",
    "context": "Check what an agent still knows after 20 minutes.",
    "sessions": "Measure how many sessions the servers of one machine hold.",
    "soak": "Run callers of all wires for hours, and fail if anything grows.",
    "longcall": "Measure the memory of a long call, and the CPU of an idle call.",
    "overhead": "Measure the cost of everything except the models.",
    "kills": "Kill the server in mid-reply, and check that clients go on.",
    "attacks": "Measure answers while other clients attack the server.",
    "faults": "Measure answers while faults are caused for real.",
    "simulate": "Check thousands of simulated calls, in virtual time.",
}
"""The benches and their short help. Help lists first what callers notice most.

The texts repeat the first lines of the commands' docstrings: help would have to import the commands for them.
"""
OF_LANGUAGE_MODELS = ("brains", "cache", "context", "guard", "reuse", "routing", "tools", "warming")
"""The benches of language models, whose modules are in a folder of their own."""
MODULES = {
    name: f"rejoinder.agent.cli.bench.{'llm.' if name in OF_LANGUAGE_MODELS else ''}{name}"
    for name in BENCHES
}
"""The module of each bench, which is imported when the bench is called."""


class Benches(LazyGroup):
    """The group of benches. ``--json`` without a file means ``--json -``: the report goes to stdout."""

    order = tuple(BENCHES)
    modules = MODULES

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments, with a dash after each bare ``--json``."""
        return super().parse_args(ctx, with_report(args))


def with_report(args: Sequence[str]) -> list[str]:
    """Return the arguments with a dash after each ``--json`` without a file.

    Typer has no options with an optional value.
    """
    given: list[str] = []
    for word in [*args, "--"]:
        if given[-1:] == ["--json"] and word.startswith("--"):
            given.append("-")
        given.append(word)
    return given[:-1]
