"""``rejoinder plan``: how many machines a number of calls needs."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rejoinder.agent.bench.planning.fleet import PlanTarget


ONE_TIER = ("calls", "report", "p95", "overhead")
"""Parameters of ``plan`` that apply without ``--overhead``."""


def plan(
    context: typer.Context,
    calls: Annotated[int, typer.Option(min=1, help="calls at the same time")],
    report: Annotated[
        Path, typer.Option("--from", exists=True, dir_okay=False, help="report of bench load --json")
    ],
    p95: Annotated[
        str, typer.Option(help="95th percentile of latency to stay below: 800ms or 0.8s")
    ] = "800ms",
    overhead: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="report of bench overhead --json: plan two tiers"),
    ] = None,
    headroom: Annotated[float, typer.Option(min=0.0, max=0.95, help="share of each server left free")] = 0.3,
    spare: Annotated[int, typer.Option(min=0, help="machines of each tier that may fail")] = 1,
    call_cores: Annotated[int, typer.Option(min=1, help="cores of a call server's machine")] = 4,
    model_cores: Annotated[int, typer.Option(min=1, help="cores of a model server's machine")] = 16,
    llm_slots: Annotated[
        int, typer.Option(min=0, help="replies that a language model server writes at a time")
    ] = 0,
    hop: Annotated[str, typer.Option(help="time of a request to a replica and back: 2ms")] = "0ms",
    serial: Annotated[
        str, typer.Option(help="work of a turn in a place that all share, such as a database: 0.1ms")
    ] = "0ms",
    wire: Annotated[str, typer.Option(help="wire of the callers, for the network")] = "realtime",
    prices: Annotated[
        str, typer.Option(help="an hour of a machine, and a GB: calls=0.1,models=0.6,llm=2,gb=0.05")
    ] = "",
    simulate: Annotated[
        bool, typer.Option("--simulate", help="also simulate the calls, with bursts and failures")
    ] = False,
    seed: Annotated[int, typer.Option(help="seed of the simulation")] = 0,
    plot: Annotated[Path | None, typer.Option(help="write plots as a PNG to this file")] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", allow_dash=True, help="write the plan to this file, - for stdout")
    ] = None,
) -> None:
    """Calculate how many machines a number of calls needs.

    With --overhead, call servers and model servers are machines of their own. The other options apply then.
    """
    from rejoinder.agent.bench.planning import one_machine
    from rejoinder.agent.bench.planning.fleet import PlanTarget
    from rejoinder.agent.bench.planning.fleet_report import prices_of
    from rejoinder.agent.bench.planning.network import wires
    from rejoinder.agent.bench.reports.output import leave

    wanted, data = milliseconds(p95), _read(report, "--from", "bench load")
    if overhead is None:
        if given := _two_tier_options(context):
            raise typer.BadParameter(
                f"{', '.join(given)}: for two tiers, which need the cost of a call: name a report of "
                "bench overhead --json",
                param_hint="--overhead",
            )
        try:
            known = one_machine.read_report(data)
            planned = one_machine.plan(calls, wanted, known)
        except one_machine.NoPlan as error:
            leave(error)
        typer.echo(one_machine.explained(calls, wanted, known, planned))
        return
    if wire not in wires():
        raise typer.BadParameter(f"{wire!r}: the wires are {', '.join(wires())}", param_hint="--wire")
    try:
        money = prices_of(prices)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--prices") from None
    asked = PlanTarget(
        calls, wanted / 1000.0, headroom, spare, call_cores, model_cores, llm_slots,
        milliseconds(hop, "--hop", 0.0) / 1000.0, milliseconds(serial, "--serial", 0.0) / 1000.0, wire, money,
    )  # fmt: skip
    cost = _read(overhead, "--overhead", "bench overhead")
    _two_tiers(asked, data, cost, simulate, seed, plot, json_file)


def _two_tier_options(context: typer.Context) -> list[str]:
    """Return the options for two tiers whose values are not the defaults."""
    return [
        each.opts[0]
        for each in context.command.params
        if each.name in context.params
        and each.name not in ONE_TIER
        and context.params[each.name] != each.get_default(context)
    ]


def _two_tiers(
    wanted: PlanTarget,
    load: Any,
    overhead: Any,
    simulate: bool,
    seed: int,
    plot: Path | None,
    json_file: Path | None,
) -> None:
    from rejoinder.agent.bench.planning import drawing, fleet_report
    from rejoinder.agent.bench.planning.fleet import plan_fleet
    from rejoinder.agent.bench.planning.measured import read_service
    from rejoinder.agent.bench.reports import timeline
    from rejoinder.agent.bench.reports.output import console_beside, leave, write
    from rejoinder.pipeline.errors import PipelineError

    console = console_beside(json_file)
    try:
        if plot:
            timeline.check()
        service = read_service(load, overhead)
        planned = plan_fleet(service, wanted)
    except PipelineError as error:
        leave(error)
    console.print(*fleet_report.tables(planned), sep="\n\n", highlight=False)
    phases = []
    if simulate:
        from rejoinder.agent.bench.planning.simulation import Simulation

        with console.status(f"simulating {wanted.calls} calls"):
            phases = Simulation(service, planned, seed).run()
        console.print("", fleet_report.phases_table(phases, planned, service), sep="\n")
    if plot:
        drawing.draw(planned, service, phases, plot)
    simulated = [fleet_report.phase_report(phase) for phase in phases]
    write(json_file, {**fleet_report.report(planned), "seed": seed, "simulated": simulated})


def _read(file: Path, option: str, bench: str) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except ValueError:
        raise typer.BadParameter(
            f"{file} is not JSON: name a report of {bench} --json", param_hint=option
        ) from None


def milliseconds(text: str, option: str = "--p95", least: float = 0.001) -> float:
    """Return the milliseconds in a time such as 800ms or 0.8s, from ``least`` on. Raises BadParameter."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(ms|s)", text.strip())
    value = float(found[1]) * (1000.0 if found[2] == "s" else 1.0) if found else -1.0
    if value < least:
        raise typer.BadParameter(f"{text!r}: write a time as 800ms or 0.8s", param_hint=option)
    return value
