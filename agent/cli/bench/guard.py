"""``rejoinder bench guard``: what guardrails cost, and how often a prompt injection is noticed."""

from __future__ import annotations

from dataclasses import asdict

from rejoinder.agent.bench.guard.costs import costs_table, full_rules, measured
from rejoinder.agent.bench.guard.injections import INJECTION_HALVES, injections_table, noticed
from rejoinder.agent.bench.reports.output import console_beside, leave, write
from rejoinder.agent.cli.options import ConfigOption, JsonOption
from rejoinder.agent.config import load
from rejoinder.agent.machine import occasion
from rejoinder.pipeline import Rules
from rejoinder.pipeline.errors import PipelineError


def guard(config: ConfigOption = None, json_file: JsonOption = None) -> None:
    """Measure the time of a guard's rules, and what they notice.

    It measures a guard with rules of every kind, and the configured one where there is one. A set of
    sentences shows how often a prompt injection is noticed.
    """
    console = console_beside(json_file)
    try:
        own = load({}, config)[0].guard.guard()
        costs = [measured("none", Rules()), measured("every kind", full_rules())]
        if own:
            costs.append(measured("configured", own.rules))
    except PipelineError as error:
        leave(error)
    found = [noticed(half) for half in INJECTION_HALVES]
    console.print(costs_table(costs))
    console.print(injections_table(found))
    injections = [asdict(half) for half in found]
    write(json_file, {**occasion(), "costs": [asdict(cost) for cost in costs], "injections": injections})
