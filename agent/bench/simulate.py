"""Simulates and checks calls of random callers, or sweeps all scripts, on all cores."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from rich.table import Table

from rejoinder.agent.simulate.calls import SCRIPTS, random_caller
from rejoinder.agent.simulate.invariants import check, hang_ups, interruptions

PER_BATCH = 20
"""Calls of random callers in one piece of work."""


def pieces(calls: int, every: int) -> int:
    """Return the number of pieces of work in ``run``."""
    return len(SCRIPTS) if every else -(-calls // PER_BATCH)


@dataclass(slots=True)
class Batch:
    """The results of some calls.

    calls: number of calls that were held or broken off. seconds: virtual seconds of the calls held to the
    end. turns: number of answered turns. failures: the failed invariants, with the caller.
    """

    calls: int = 0
    seconds: float = 0.0
    turns: int = 0
    failures: list[str] = field(default_factory=list)

    def add(self, other: Batch) -> None:
        """Add the results of another batch."""
        self.calls += other.calls
        self.seconds += other.seconds
        self.turns += other.turns
        self.failures += other.failures


@dataclass(frozen=True, slots=True)
class Simulated:
    """The results of a run: ``wall_s`` seconds in ``processes`` processes."""

    batch: Batch
    wall_s: float
    processes: int

    @property
    def per_minute(self) -> float:
        """Calls per minute."""
        return self.batch.calls * 60.0 / self.wall_s


def simulate_batch(seeds: Sequence[int]) -> Batch:
    """Simulate the calls of random callers and check the invariants of each."""
    batch = Batch()
    for seed in seeds:
        batch.calls += 1
        try:
            call = random_caller(seed).call()
            check(call)
            batch.seconds += call.ended
            batch.turns += len(call.latency_ms)
        except Exception as error:  # the report names the caller, and the other calls go on
            batch.failures.append(f"caller {seed}: {type(error).__name__}: {error}")
    return batch


def sweep(name: str, every: int) -> Batch:
    """Hang up, and in other calls stop the agent, in every Nth step of a script."""
    batch = Batch()
    for way in (hang_ups, interruptions):
        try:
            for _ in way(SCRIPTS[name], every):
                batch.calls += 1
        except Exception as error:
            notes = ", ".join(getattr(error, "__notes__", ()))
            batch.failures.append(f"{way.__name__} {name} {notes}: {type(error).__name__}: {error}")
    return batch


def run(
    calls: int, seed: int, every: int, processes: int, tell: Callable[[int], None] = lambda done: None
) -> Simulated:
    """Simulate calls, or sweep the scripts if ``every`` > 0; pass the number of done pieces to ``tell``."""
    work: list[Callable[[], Batch]] = [partial(sweep, name, every) for name in SCRIPTS] if every else []
    if not every:
        seeds = range(seed, seed + calls)
        work = [
            partial(simulate_batch, seeds[first : first + PER_BATCH]) for first in range(0, calls, PER_BATCH)
        ]
    whole = Batch()
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        list(pool.map(abs, range(processes)))  # the time excludes the start of Python
        began = time.perf_counter()
        for done, batch in enumerate(pool.map(_call, work)):
            whole.add(batch)
            tell(done + 1)
        wall = time.perf_counter() - began
    return Simulated(whole, wall, processes)


def _call(work: Callable[[], Batch]) -> Batch:
    return work()


def table(simulated: Simulated) -> Table:
    """Return the table for the terminal."""
    batch = simulated.batch
    shown = Table("", "", show_header=False)
    shown.add_row("calls", f"{batch.calls}")
    if batch.seconds:
        shown.add_row("answered turns", f"{batch.turns}")
        shown.add_row("seconds per call", f"{batch.seconds / batch.calls:.1f}")
    shown.add_row("took", f"{simulated.wall_s:.1f} s in {simulated.processes} processes")
    shown.add_row("calls per minute", f"{simulated.per_minute:.0f}")
    shown.add_row("failed", f"{len(batch.failures)}")
    return shown


def report(simulated: Simulated) -> dict[str, Any]:
    """Return the figures as JSON data."""
    figures = {"wall_s": simulated.wall_s, "processes": simulated.processes}
    return {**asdict(simulated.batch), **figures, "per_minute": simulated.per_minute}
