"""``rejoinder bench context``: what is known after 20 minutes."""

from __future__ import annotations

from rejoinder.agent.bench import context as bench_context
from rejoinder.agent.bench.reports.output import console_beside, write
from rejoinder.agent.cli.options import JsonOption
from rejoinder.agent.machine import occasion


def context(json_file: JsonOption = None) -> None:
    """Check what an agent still knows after 20 minutes.

    The caller tells a name, a number and a decision in the first minute. The calls are held in virtual time,
    and need no weights and no recordings.
    """
    console = console_beside(json_file)
    found = bench_context.run()
    console.print(bench_context.table(found))
    write(json_file, {**occasion(), "calls": bench_context.report(found)})
