"""Draws a plan: what waits at which load, the latency over the number of calls, and the latency's parts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from rejoinder.agent.bench.planning.fleet import Fleet, Group, wait_of, with_calls
from rejoinder.agent.bench.planning.measured import Service
from rejoinder.agent.bench.planning.queues import waiting

if TYPE_CHECKING:
    from rejoinder.agent.bench.planning.simulation import Phase

ROLE_NAMES = {"stt": "recogniser", "turn": "turn model", "llm": "language model", "tts": "voice"}
"""What tables and plots call the roles."""
PLOT_POINTS = 40
"""Loads of a curve."""
MOST_PLOTTED = 1.5
"""The curves end at this multiple of the planned calls."""
MANY = 10.0
"""The jobs that wait at the point which the plot marks."""
FAINT = "#a0a0a0"
"""Colour of lines that help to read."""


def draw(fleet: Fleet, service: Service, phases: Sequence[Phase], path: Path) -> None:
    """Write a PNG with three plots. phases: of the simulation, whose points are beside the formulas."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 11), dpi=130, layout="constrained")
    FigureCanvasAgg(figure)
    upper, middle, lower = figure.subplots(3, 1)
    _draw_waiting(upper, fleet)
    _draw_latency(middle, fleet, service, phases)
    _draw_budget(lower, fleet, service)
    figure.savefig(path)


def at_utilisation(one: Group, calls: int, busy: float) -> float:
    """Return how many jobs wait, on average, if the replicas of a group are busy for this share of time."""
    servers = one.replicas * one.slots
    work = one.work.scaled(busy * servers)
    found = wait_of(one.routing, servers, max(1, round(calls * busy / one.busy)), work)
    return waiting(work, found.mean)


def knee(one: Group, calls: int) -> float:
    """Return the utilisation from which ``MANY`` jobs wait, 1.0 where that is never so below it."""
    low, high = 0.0, 1.0
    for _ in range(10):
        middle = (low + high) / 2.0
        low, high = (low, middle) if at_utilisation(one, calls, middle) >= MANY else (middle, high)
    return high


def parts(fleet: Fleet, service: Service) -> list[tuple[str, float]]:
    """Return the mean parts of an answer's latency, in seconds: work, waits, hops and the rest."""
    found = [("silence, network, client", fmean(service.rest_s))]
    for one in fleet.groups:
        name = ROLE_NAMES[one.stage.role]
        found.append((f"wait for the {name}", one.wait.mean))
        if one.stage.answer_s:
            found.append((name, fmean(one.stage.answer_s)))
    if fleet.wanted.hop_s:
        found.append(("hops", service.hops * fleet.wanted.hop_s))
    if fleet.wanted.serial_s:
        found.append(("the shared place", fleet.wanted.serial_s / (1.0 - fleet.shared_busy)))
    return found


def _draw_waiting(axes: Any, fleet: Fleet) -> None:
    calls = fleet.wanted.calls
    for number, one in enumerate(fleet.groups):
        loads = [0.98 * (k + 1) / PLOT_POINTS for k in range(PLOT_POINTS)]
        line = [at_utilisation(one, calls, load) for load in loads]
        shown = [value if 0.01 < value < math.inf else math.nan for value in line]
        colour, name = f"C{number}", ROLE_NAMES[one.stage.role]
        axes.plot(loads, shown, color=colour, label=f"{name} ({one.replicas}, {one.routing})")
        if (at := knee(one, calls)) < 1.0:
            axes.plot(at, MANY, "v", color=colour)
        if (here := at_utilisation(one, calls, one.busy)) > 0.01:
            axes.plot(one.busy, here, "o", color=colour)
    axes.axhline(MANY, color=FAINT, linestyle="--", linewidth=1)
    axes.annotate("ten wait", (0.01, MANY), xytext=(0, 3), textcoords="offset points")
    axes.set_yscale("log")
    axes.set_xlim(0, 1)
    axes.set_xlabel("share of time in which the replicas are busy; dots: as planned")
    axes.set_ylabel("jobs that wait, mean")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, loc="lower right")


def _draw_latency(axes: Any, fleet: Fleet, service: Service, phases: Sequence[Phase]) -> None:
    calls, wanted = fleet.wanted.calls, 1000 * fleet.wanted.p95_s
    loads = sorted({max(1, round(calls * MOST_PLOTTED * (k + 1) / PLOT_POINTS)) for k in range(PLOT_POINTS)})
    curves = [with_calls(service, fleet, load) for load in loads]
    for number, (name, style) in enumerate((("p50", "-"), ("p95", "-"), ("p99", ":"))):
        line = [1000 * one[number] if math.isfinite(one[number]) else math.nan for one in curves]
        axes.plot(loads, line, style, color=f"C{number}", label=f"{name}, formulas")
        points = [(one.calls, getattr(one.summary(), name)) for one in phases if one.calm]
        if points:
            axes.plot(*zip(*points, strict=True), "o", color=f"C{number}", label=f"{name}, simulated")
    axes.axhline(wanted, color=FAINT, linestyle="--", linewidth=1)
    axes.annotate("wanted p95", (loads[0], wanted), xytext=(0, 3), textcoords="offset points")
    axes.axvline(calls, color=FAINT, linestyle="--", linewidth=1)
    axes.set_ylim(0, 2.5 * wanted)
    axes.set_xlabel(f"calls at the same time, on the machines for {calls}")
    axes.set_ylabel("last word to first sound, ms")
    axes.grid(alpha=0.3)
    axes.legend(frameon=False, loc="upper left")


def _draw_budget(axes: Any, fleet: Fleet, service: Service) -> None:
    begin = 0.0
    for place, (name, seconds) in enumerate(found := parts(fleet, service)):
        colour, lasts = "C3" if name.startswith("wait") else "C0", 1000 * seconds
        axes.barh(place, lasts, left=begin, color=colour)
        axes.annotate(f"{lasts:.0f}", (begin + lasts, place), xytext=(3, -3), textcoords="offset points")
        begin += lasts
    axes.set_yticks(range(len(found)), [name for name, _ in found])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.1 * begin)
    axes.set_xlabel(f"mean parts of an answer, in ms: {begin:.0f} together; red: waits")
    axes.grid(alpha=0.3, axis="x")
