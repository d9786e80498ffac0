"""Shows a plan of two tiers: tables and JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.table import Table

from rejoinder.agent.bench.planning.drawing import ROLE_NAMES, knee
from rejoinder.agent.bench.planning.fleet import Fleet, with_calls
from rejoinder.agent.bench.planning.measured import Service
from rejoinder.agent.bench.reports.waterfall import ms

if TYPE_CHECKING:
    from rejoinder.agent.bench.planning.simulation import Phase

LEAST_FULL = 0.005
"""Share of calls at replicas that are always busy from which the tables mention it."""


def tables(fleet: Fleet) -> list[RenderableType]:
    """Return the tables and sentences for the terminal."""
    wanted, calls = fleet.wanted, fleet.wanted.calls
    title = f"{calls} calls, {fleet.turns:.0f} turns a second: p95 about {1000 * fleet.p95_s:.0f} ms"
    shown = _table(f"{title} (wanted {1000 * wanted.p95_s:.0f})")
    for column in ("", "replicas", "requests by", "busy %", "waits %", "wait ms", "network MB/s"):
        shown.add_column(column, justify="left" if column in ("", "requests by") else "right", no_wrap=True)
    outer = calls * (fleet.traffic.received + fleet.traffic.sent) / 1e6
    shown.add_row(
        "call servers", f"{fleet.processes}", "-", f"{100 * fleet.process_busy:.0f}", "-", "-", f"{outer:.0f}"
    )
    for one in fleet.groups:
        inner = fleet.inner[one.stage.role] / 1e6
        shown.add_row(
            ROLE_NAMES[one.stage.role],
            f"{one.replicas}" + (f" x {one.slots}" if one.slots > 1 else ""),
            one.routing,
            f"{100 * one.busy:.0f}",
            f"{100 * one.wait.probability:.0f}",
            f"{1000 * one.wait.mean:.0f}",
            f"{inner:.0f}" if inner else "-",
        )
    return [shown, machines(fleet), "\n".join(_sentences(fleet))]


def machines(fleet: Fleet) -> Table:
    """Return the table of machines and money."""
    wanted, money = fleet.wanted, fleet.money
    shown = _table("Machines, with the spare ones")
    for column in ("", "machines", "cores each", *(("an hour",) if money else ())):
        shown.add_column(column, justify="right" if column else "left", no_wrap=True)
    rows = [("call servers", "calls", fleet.call_machines, str(wanted.call_cores))]
    rows.append(("model servers", "models", fleet.model_machines, str(wanted.model_cores)))
    if fleet.llm_machines:
        rows.append(("language model servers", "llm", fleet.llm_machines, "-"))
    for name, key, number, cores in rows:
        shown.add_row(name, str(number), cores, *((f"{money.hourly.get(key, 0.0):.2f}",) if money else ()))
    if money:
        shown.add_row("traffic to callers", "", "", f"{money.hourly['gb']:.2f}")
        shown.add_row("all", "", "", f"{money.total:.2f}")
    return shown


def _sentences(fleet: Fleet) -> list[str]:
    wanted = fleet.wanted
    times = (fleet.p50_s, fleet.p95_s, fleet.p99_s, fleet.alone_p95_s)
    p50, p95, p99, alone = (f"{1000 * each:.0f}" for each in times)
    heard, sent = (8 * each / 1000 for each in (fleet.traffic.received, fleet.traffic.sent))
    said = [
        f"p50 {p50}, p95 {p95}, p99 {p99} ms; with idle models a p95 of {alone} ms.",
        f"Head-room: at most {100 * (1 - wanted.headroom):.0f} % busy. A call on the wire {wanted.wire}: "
        f"{heard:.0f} kbit/s in and at most {sent:.0f} out, with all headers.",
    ]
    for one in fleet.groups:
        name = ROLE_NAMES[one.stage.role].capitalize()
        if one.stage.threads > 1 and one.slots == 1:
            said.append(f"{name}: each replica has {one.stage.threads} cores, one for each measured thread.")
        if (at := knee(one, wanted.calls)) < 1.0:
            said.append(
                f"{name}: from {100 * at:.0f} % busy on, ten requests wait, on average, at all replicas."
            )
        if one.wait.full >= LEAST_FULL:
            said.append(
                f"{name}: a hash gives {100 * one.wait.full:.0f} % of the calls a replica that is always "
                "busy. Partial transcripts are late there, and answers wait for the job that runs."
            )
    if wanted.serial_s:
        said.append(
            f"Shared by all: {100 * fleet.shared_busy:.0f} % busy. By Amdahl's law {fleet.cores:.0f} cores "
            f"do the work of {fleet.speedup:.0f}, and any number that of {fleet.most_speedup:.0f}."
        )
    if fleet.money:
        said.append(f"A minute of a call costs {fleet.money.call_minute:.5f} in the money of --prices.")
    return said


def report(fleet: Fleet) -> dict[str, Any]:
    """Return the plan as JSON data, in seconds and bytes per second."""
    wanted = fleet.wanted
    return {
        "calls": wanted.calls,
        "turns_per_second": fleet.turns,
        "wanted_p95_s": wanted.p95_s,
        "p50_s": fleet.p50_s,
        "p95_s": fleet.p95_s,
        "p99_s": fleet.p99_s,
        "alone_p95_s": fleet.alone_p95_s,
        "headroom": wanted.headroom,
        "call_servers": {
            "processes": fleet.processes,
            "busy": fleet.process_busy,
            "machines": fleet.call_machines,
        },
        "model_machines": fleet.model_machines,
        "llm_machines": fleet.llm_machines,
        "models": {
            one.stage.role: {
                "replicas": one.replicas,
                "slots": one.slots,
                "threads": one.stage.threads,
                "routing": one.routing,
                "busy": one.busy,
                "waits": one.wait.probability,
                "wait_s": one.wait.mean,
                "calls_at_full_replicas": one.wait.full,
                "jobs_per_turn": one.stage.jobs,
                "busy_s_per_turn": one.stage.busy_s,
                "bytes_per_second": fleet.inner[one.stage.role],
            }
            for one in fleet.groups
        },
        "wire": wanted.wire,
        "call_bytes_per_second": {"received": fleet.traffic.received, "sent": fleet.traffic.sent},
        "amdahl": {
            "cores": fleet.cores,
            "speedup": fleet.speedup,
            "most_speedup": None if math.isinf(fleet.most_speedup) else fleet.most_speedup,
            "shared_busy": fleet.shared_busy,
        },
        "money": None
        if fleet.money is None
        else {
            "hourly": dict(fleet.money.hourly),
            "total": fleet.money.total,
            "call_minute": fleet.money.call_minute,
        },
    }


def phases_table(phases: Sequence[Phase], fleet: Fleet, service: Service) -> Table:
    """Return the table of a simulation, beside the formulas' p95 for the same calls."""
    shown = _table("Simulated, last word to first sound, in ms")
    columns = ("", "calls", "p50", "p95", "p99", "formula", "late %", "lost", "retried", "cut", "moved")
    for column in columns:
        shown.add_column(column, justify="right" if column else "left", no_wrap=True)
    for one in phases:
        stats = one.summary()
        late = sum(each > 1000 * fleet.wanted.p95_s for each in one.latencies_ms)
        shown.add_row(
            one.name,
            f"{one.calls}",
            *map(ms, (stats.p50, stats.p95, stats.p99)),
            ms(1000 * with_calls(service, fleet, one.calls)[1]) if one.calm else "-",
            f"{100 * late / max(1, stats.count):.1f}",
            f"{one.lost}",
            f"{one.retried}",
            f"{one.cut}",
            f"{one.moved}",
        )
    return shown


def phase_report(phase: Phase) -> dict[str, Any]:
    """Return a phase of a simulation as JSON data."""
    stats = phase.summary()
    return {
        "name": phase.name,
        "calls": phase.calls,
        "turns": stats.count,
        "p50_ms": stats.p50,
        "p95_ms": stats.p95,
        "p99_ms": stats.p99,
        "lost": phase.lost,
        "retried": phase.retried,
        "cut": phase.cut,
        "moved": phase.moved,
        "busy": phase.busy,
    }


def prices_of(text: str) -> Mapping[str, float]:
    """Return the prices in a text such as calls=0.1,models=0.64,llm=2,gb=0.05. Raises ValueError."""
    found: dict[str, float] = {}
    for part in filter(None, text.split(",")):
        name, _, value = part.partition("=")
        if name.strip() not in PRICES:
            raise ValueError(f"{part!r}: write prices as {'=0.1,'.join(PRICES)}=0.1")
        found[name.strip()] = float(value)
        if not 0.0 <= found[name.strip()] < math.inf:
            raise ValueError(f"{part!r}: a price is a number from 0")
    return found


PRICES = ("calls", "models", "llm", "gb")
"""What has a price: an hour of a machine of each tier, and a gigabyte of traffic to callers."""


def _table(title: str) -> Table:
    return Table(title=title, title_justify="left", title_style="bold", box=None)
