"""``rejoinder simulate``: a call with an agent in virtual time, from a YAML file."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.table import Table

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.call import RefusedCall
from rejoinder.agent.simulate.story import read_story, tell
from rejoinder.pipeline import PipelineError


def run(agent: Agent, script: Path, console: Console) -> tuple[int, str]:
    """Hold the call and print its steps; return the exit code and the reason of a failure.

    0: all that was expected has happened. 1: it has not. 2: the file is no call.
    """
    try:
        story = read_story(script)
    except PipelineError as error:
        return 2, str(error)
    try:
        results = tell(agent, story)
    except RefusedCall as refused:
        return 1, f"the agent refuses the call: {refused}"
    shown = Table(box=None)
    for name in ("s", "", ""):
        shown.add_column(name, justify="right" if name else "left", no_wrap=bool(name))
    for result in results:
        shown.add_row(f"{result.at:.1f}", "no" if result.wrong else "ok", str(result.step))
    console.print(shown, markup=False, highlight=False)
    failed = [result.wrong for result in results if result.wrong]
    return (1, failed[0]) if failed else (0, "")
