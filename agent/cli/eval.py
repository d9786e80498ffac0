"""``rejoinder eval``: holds the calls of a YAML file with a real language model, and counts what passes."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rejoinder.agent import logs
from rejoinder.agent.app.loading import load_agent
from rejoinder.agent.cli.options import JsonOption, LogLevelOption
from rejoinder.agent.config import ConfigError
from rejoinder.agent.simulate import virtual_clock
from rejoinder.agent.simulate.evaluation.plan import MAX_REPEATS, EvaluationPlan, read_plan
from rejoinder.agent.simulate.evaluation.reports import as_json, as_junit
from rejoinder.agent.simulate.evaluation.running import CallOutcome, Repetition, check_tools, evaluate
from rejoinder.models.hints import NotInstalled
from rejoinder.pipeline import PipelineError


def eval(
    calls: Annotated[Path, typer.Argument(help="the calls and what is expected of them: a YAML file")],
    llm: Annotated[str | None, typer.Option(help="language model, instead of the file's")] = None,
    judge: Annotated[
        str | None, typer.Option(help="language model that judges, instead of the file's")
    ] = None,
    repeat: Annotated[
        int | None, typer.Option(min=1, max=MAX_REPEATS, help="how often each call is held")
    ] = None,
    threshold: Annotated[
        float | None, typer.Option(min=0.0, max=1.0, help="share of the repetitions that must pass")
    ] = None,
    only: Annotated[list[str] | None, typer.Option(help="hold only the call of this name")] = None,
    json: JsonOption = None,
    log_level: LogLevelOption = "warning",
    junit: Annotated[Path | None, typer.Option(help="write a report for CI systems to this file")] = None,
) -> None:
    """Test an agent with a real model.

    Each call of the file is held in virtual time, several times. Exits with 1 if fewer of its repetitions
    pass than the threshold says, and with 2 for a mistake in the file.
    """
    logs.start(log_level)
    complaints = Console(stderr=True, soft_wrap=True, highlight=False)

    def leave(reason: str, code: int) -> typer.Exit:
        for line in reason.splitlines():
            complaints.print(Text.assemble(("error: ", "red"), line))
        return typer.Exit(code)

    def report(name: str, held: Repetition) -> None:
        complaints.print(f"{name}: {'; '.join(held.mistakes) or 'passed'}", markup=False)

    try:
        plan = chosen(
            read_plan(calls), {"llm": llm, "judge": judge, "repeat": repeat, "threshold": threshold}, only
        )
        agent = load_agent(plan.agent)
        check_tools(plan, agent)
    except (ConfigError, NotInstalled) as error:
        raise leave(str(error), 2) from None
    try:
        with redirect_stdout(sys.stderr):  # what the agent prints is no part of the report
            outcomes = virtual_clock.run(evaluate(plan, agent, report))
    except PipelineError as error:
        raise leave(str(error), 2 if isinstance(error, ConfigError) else 1) from None
    if json and str(json) == "-":
        typer.echo(as_json(outcomes))
    else:
        Console().print(table(outcomes))
    if json and str(json) != "-":
        json.write_text(as_json(outcomes), encoding="utf-8")
    if junit:
        junit.write_text(as_junit(outcomes), encoding="utf-8")
    if not all(one.good for one in outcomes):
        raise typer.Exit(1)


def chosen(
    plan: EvaluationPlan, flags: dict[str, str | int | float | None], only: list[str] | None
) -> EvaluationPlan:
    """Return the plan with the values of the command line.

    Raises ConfigError if it has no language model, questions without a judge, or no call of a name in
    ``only``.
    """
    plan = plan.model_copy(update={name: value for name, value in flags.items() if value is not None})
    if only:
        names = [call.name for call in plan.calls]
        if unknown := [name for name in only if name not in names]:
            raise ConfigError(f"there is no call {unknown[0]!r}; there are: {', '.join(names)}")
        plan = plan.model_copy(update={"calls": [call for call in plan.calls if call.name in only]})
    if not plan.llm:
        raise ConfigError("no language model is given: write llm: openai:http://HOST/v1#MODEL, or use --llm")
    if not plan.judge and (asked := [call.name for call in plan.calls if call.expect.judge]):
        raise ConfigError(f"the call {asked[0]!r} asks a judge: name a model by judge: or --judge")
    return plan


def table(outcomes: list[CallOutcome]) -> Table:
    """Return a table with one row per call: its pass rate, its latency, and what went wrong how often."""
    made = Table("call", "passed", "rate", "latency", "what went wrong")
    for one in outcomes:
        wrong = [mistake for held in one.repetitions for mistake in held.mistakes]
        counted = [f"{wrong.count(mistake)}x {mistake}" for mistake in dict.fromkeys(wrong)]
        style = "green" if one.good else "red"
        rate = Text(f"{one.rate:.0%}", style)
        latency = f"{one.latency_ms} ms" if one.latency_ms else ""
        made.add_row(
            Text(one.name),
            f"{one.passed}/{len(one.repetitions)}",
            rate,
            latency,
            Text("\n".join(counted)),
        )
    return made
