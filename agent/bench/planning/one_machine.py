"""Calculates how many machines a number of calls needs, with Erlang's formula C and a bench's measurements.

A call stays on its machine, so each machine is an M/M/c queue: turns arrive at random, their CPU times are
exponentially distributed, and each of the c cores serves one turn at a time. The load counts the whole CPU
time of a turn. The wait counts only the CPU time of answers, which is shorter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, Field, NonNegativeInt, PositiveInt, ValidationError

from rejoinder.agent.bench.planning.queues import OfferedLoad, erlang_c, pooled
from rejoinder.agent.bench.reports.waterfall import HEARD_END, REST_LABEL
from rejoinder.pipeline.errors import PipelineError
from rejoinder.pipeline.trace import PART_NAMES

MOST_PLANNED_BUSY = 0.85
"""Largest share of time in which the cores are busy: above it, small bursts make long queues."""
MOST_MACHINES = 100_000
"""Largest number of machines in a plan."""
WAITING_PARTS = frozenset(
    (HEARD_END, REST_LABEL, *(PART_NAMES[mark] for mark in ("pause_seen", "committed", "audio_sent")))
)
"""Parts of a latency during which no model works."""


Figure = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]


class ReportPart(BaseModel):
    """A part of a latency."""

    name: str
    ms: Annotated[float, Field(allow_inf_nan=False)]


class Latency(BaseModel):
    """The latency of a level in ms; None if no turn was answered."""

    p95: Figure | None


class ReportLevel(BaseModel):
    """The measurements with one number of callers."""

    sessions: PositiveInt
    answered: NonNegativeInt
    processor_s: Figure | None
    latency: Latency
    waterfall: list[ReportPart]


class Machine(BaseModel):
    """The machine of the measurements."""

    cores: PositiveInt


class Report(BaseModel):
    """The fields of a report of ``rejoinder bench load`` that the plan reads."""

    levels: Annotated[list[ReportLevel], Field(min_length=1)]
    every_s: Figure
    machine: Machine


class NoPlan(PipelineError):
    """No number of machines is enough, or the report lacks data. The message gives the reason."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The measurements of one machine.

    work_s: total CPU seconds of a turn with the most callers. With fewer callers a turn takes more, because
        partial transcripts are more frequent.
    answer_s: seconds of model work between the pause and the first sound, with the fewest callers.
    alone_ms: p95 of the latency with the fewest callers.
    every_s: seconds from one turn of a call to its next one. cores: of the machine.
    seen: (number of callers, p95 of their latency in ms) of each level.
    """

    work_s: float
    answer_s: float
    alone_ms: float
    every_s: float
    cores: int
    seen: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """The behaviour of a number of machines.

    busy: share of time. waits: share of turns that wait for a core. wait_p95_ms: 95th percentile of the wait.
    p95_ms: 95th percentile of the latency.
    """

    machines: int
    calls_each: float
    busy: float
    waits: float
    wait_p95_ms: float
    p95_ms: float


def wait_s(servers: int, load: float, service_s: float, share: float = 0.95) -> float:
    """Return the quantile ``share`` of the wait in seconds: P(wait > t) = C exp(-(c - a) t / s)."""
    return pooled(servers, OfferedLoad(load, service_s)).quantile(share)


def plan_with(machines: int, calls: int, measured: Measured) -> Plan | None:
    """Return the plan with a number of machines, None if their queues would grow without limit."""
    each = calls / machines
    load = each / measured.every_s * measured.work_s
    if load >= measured.cores:
        return None
    waited = 1000.0 * wait_s(measured.cores, load, measured.answer_s)
    waits = erlang_c(measured.cores, load)
    return Plan(machines, each, load / measured.cores, waits, waited, measured.alone_ms + waited)


def most_calls(p95_ms: float, measured: Measured) -> float:
    """Return the limit of calls per machine: the most that were in time, if more were measured as late."""
    late = min((callers for callers, p95 in measured.seen if p95 > p95_ms), default=math.inf)
    in_time = [callers for callers, _ in measured.seen if callers < late]
    return max(in_time) if in_time and late < math.inf else math.inf


def plan(calls: int, p95_ms: float, measured: Measured) -> Plan:
    """Return the plan with the fewest machines that answer 95 % of the turns in time. Raises NoPlan."""
    if measured.alone_ms > p95_ms:
        raise NoPlan(
            f"the fewest callers had a p95 of {measured.alone_ms:.0f} ms: more machines cannot reduce it"
        )
    busy = calls * measured.work_s / measured.every_s / (MOST_PLANNED_BUSY * measured.cores)
    least = math.ceil(max(busy, calls / most_calls(p95_ms, measured)))
    for machines in range(max(1, least), MOST_MACHINES + 1):
        planned = plan_with(machines, calls, measured)
        if planned and planned.busy <= MOST_PLANNED_BUSY and planned.p95_ms <= p95_ms:
            return planned
    raise NoPlan(f"more than {MOST_MACHINES} machines would be needed")


def wrong(error: ValidationError) -> str:
    """Return the first thing that is wrong in a report, and where."""
    first = error.errors()[0]
    where = ".".join(map(str, first["loc"]))
    return f"{where}: {first['msg']}" if where else first["msg"]


def read_report(report: Any) -> Measured:
    """Return the measurements in a report of ``rejoinder bench load``. Raises NoPlan."""
    try:
        given = Report.model_validate(report)
    except ValidationError as error:
        raise NoPlan(f"this is not a report of rejoinder bench load --json ({wrong(error)})") from None
    levels = sorted(given.levels, key=lambda level: level.sessions)
    alone, most = levels[0], levels[-1]
    answering = sum(part.ms for part in alone.waterfall if part.name not in WAITING_PARTS) / 1000.0
    if alone.latency.p95 is None or not answering or most.processor_s is None or not most.answered:
        raise NoPlan("the report has no processor times: measure our own server, without --url")
    seen = [
        (level.sessions, level.latency.p95)
        for level in levels
        if level.answered and level.latency.p95 is not None
    ]
    work = most.processor_s / most.answered
    return Measured(work, answering, alone.latency.p95, given.every_s, given.machine.cores, tuple(seen))


def explained(calls: int, p95_ms: float, known: Measured, planned: Plan) -> str:
    """Return the text for the terminal: the plan, its formula with the figures, and its assumptions."""
    load = planned.busy * known.cores
    return f"""\
{planned.machines} machine{"s" if planned.machines > 1 else ""} of {known.cores} cores for {calls} calls: \
p95 about {planned.p95_ms:.0f} ms (wanted {p95_ms:.0f}), {100 * planned.busy:.0f} % busy

measured   work = {known.work_s:.2f} s of processor a turn, and a turn every {known.every_s:.3g} s of a call;
           alone: s = {known.answer_s:.3f} s of models' work for an answer, a p95 of {known.alone_ms:.0f} ms
each       {planned.calls_each:.1f} calls: a = calls / every * work = {load:.2f} erlangs on c = {known.cores}
busy       a / c = {planned.busy:.2f}, at most {MOST_PLANNED_BUSY}
waits      C(c, a) = {planned.waits:.3f} of the turns (Erlang C)
wait p95   ln(C / 0.05) * s / (c - a) = {planned.wait_p95_ms:.0f} ms, 0 where C < 0.05
p95        {known.alone_ms:.0f} + {planned.wait_p95_ms:.0f} = {planned.p95_ms:.0f} ms
on one     {", ".join(_compared(known))}

Assumed: turns come at random (Poisson), answers scatter exponentially and each is one job on one core,
calls are spread evenly and stay on their machine, all machines are like the measured one and have memory
enough. If the report has a number of calls with answers that came too late, no machine gets more calls than
the largest smaller number in it."""


def _compared(known: Measured) -> list[str]:
    """Return the measured latency for each number of callers, and the formula's value for it."""
    said = []
    for callers, p95 in known.seen:
        planned = plan_with(1, callers, known)
        formula = f"{planned.p95_ms:.0f}" if planned else "no end"
        said.append(f"{callers}: {p95:.0f} ms (planned {formula})")
    return said
