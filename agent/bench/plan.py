"""How many machines so many calls need: queueing by Erlang's formula C, from what a bench has measured.

Calls stay on the machine that took them, so each machine has a queue of its own, M/M/c: turns come at random,
take the processor for times that scatter exponentially, and each of its c cores serves one at a time. The
load is all that a turn takes; what an answer waits for is other answers, which are shorter.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, Field, NonNegativeInt, PositiveInt, ValidationError

from rejoinder.agent.bench.reports.waterfall import HEARD_END, REST
from rejoinder.pipeline.errors import PipelineError
from rejoinder.pipeline.trace import PART_NAMES

MOST_BUSY = 0.85
"""Share of the time in which the cores may be busy: beyond it small bursts make long queues."""
MOST_MACHINES = 100_000
WAITING = frozenset(
    (HEARD_END, REST, *(PART_NAMES[mark] for mark in ("pause_seen", "committed", "audio_sent")))
)
"""Parts of a latency in which no model works."""


Figure = Annotated[float, Field(gt=0.0, allow_inf_nan=False)]


class Part(BaseModel):
    """Where some of a latency went."""

    name: str
    ms: Annotated[float, Field(allow_inf_nan=False)]


class Latency(BaseModel):
    """Of a level, in ms; None where nothing was answered."""

    p95: Figure | None


class Level(BaseModel):
    """What was measured with so many callers."""

    sessions: PositiveInt
    answered: NonNegativeInt
    processor_s: Figure | None
    latency: Latency
    waterfall: list[Part]


class Machine(BaseModel):
    """On which it was measured."""

    cores: PositiveInt


class Report(BaseModel):
    """What is read of a report of ``rejoinder bench load``."""

    levels: Annotated[list[Level], Field(min_length=1)]
    every_s: Figure
    machine: Machine


class NoPlan(PipelineError):
    """There is no number of machines that would do, or the report cannot tell; the message says why."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a bench tells of a machine.

    work_s: seconds of processor that a turn takes in all, with the most callers: with fewer it takes more,
        because partial transcripts come more often.
    answer_s: seconds from the pause to the first sound in which models work, with the fewest callers.
    alone_ms: p95 of the latency with the fewest callers.
    every_s: seconds from one turn of a call to its next. cores: of the machine.
    seen: what was measured: callers, and the p95 of their latency in ms.
    """

    work_s: float
    answer_s: float
    alone_ms: float
    every_s: float
    cores: int
    seen: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """What so many machines would do. busy: share of time. waits: share of turns that wait for a core at all.

    wait_p95_ms: what 95 % of the turns wait at most. p95_ms: of the whole latency.
    """

    machines: int
    calls_each: float
    busy: float
    waits: float
    wait_p95_ms: float
    p95_ms: float


def erlang_c(servers: int, load: float) -> float:
    """Return the probability that a job has to wait; ``load`` is in erlangs and below ``servers``.

    By the recurrence of Erlang's formula B, which no factorial can overflow: B(0) = 1,
    B(n) = load B(n-1) / (n + load B(n-1)), and C = B / (1 - busy (1 - B)).
    """
    blocked = 1.0
    for count in range(1, servers + 1):
        blocked = load * blocked / (count + load * blocked)
    return blocked / (1.0 - load / servers * (1.0 - blocked))


def wait_s(servers: int, load: float, service_s: float, share: float = 0.95) -> float:
    """Return the seconds that ``share`` of the jobs wait at most: P(wait > t) = C exp(-(c - a) t / s)."""
    waits = erlang_c(servers, load)
    return max(0.0, math.log(waits / (1.0 - share)) * service_s / (servers - load)) if waits else 0.0


def on(machines: int, calls: int, measured: Measured) -> Plan | None:
    """Return what happens with so many machines, None where their queues would grow without an end."""
    each = calls / machines
    load = each / measured.every_s * measured.work_s
    if load >= measured.cores:
        return None
    waited = 1000.0 * wait_s(measured.cores, load, measured.answer_s)
    waits = erlang_c(measured.cores, load)
    return Plan(machines, each, load / measured.cores, waits, waited, measured.alone_ms + waited)


def most_calls(p95_ms: float, measured: Measured) -> float:
    """Return how many calls a machine may have: as many as were seen in time, where more were seen late."""
    late = min((callers for callers, p95 in measured.seen if p95 > p95_ms), default=math.inf)
    in_time = [callers for callers, _ in measured.seen if callers < late]
    return max(in_time) if in_time and late < math.inf else math.inf


def plan(calls: int, p95_ms: float, measured: Measured) -> Plan:
    """Return the fewest machines on which 95 % of the turns are answered in time. Raises NoPlan."""
    if measured.alone_ms > p95_ms:
        raise NoPlan(
            f"the fewest callers had a p95 of {measured.alone_ms:.0f} ms: no machines make that less"
        )
    busy = calls * measured.work_s / measured.every_s / (MOST_BUSY * measured.cores)
    least = math.ceil(max(busy, calls / most_calls(p95_ms, measured)))
    for machines in range(max(1, least), MOST_MACHINES):
        planned = on(machines, calls, measured)
        if planned and planned.busy <= MOST_BUSY and planned.p95_ms <= p95_ms:
            return planned
    raise NoPlan(f"more than {MOST_MACHINES} machines would be needed")


def measured(report: Any) -> Measured:
    """Return what a report of ``rejoinder bench load`` tells. Raises NoPlan."""
    try:
        told = Report.model_validate(report)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        why = f"{where}: {first['msg']}" if where else first["msg"]
        raise NoPlan(f"this is no report of rejoinder bench load --json ({why})") from None
    levels = sorted(told.levels, key=lambda level: level.sessions)
    alone, most = levels[0], levels[-1]
    answering = sum(part.ms for part in alone.waterfall if part.name not in WAITING) / 1000.0
    if alone.latency.p95 is None or not answering or most.processor_s is None or not most.answered:
        raise NoPlan("the report has no processor times: measure our own server, without --url")
    seen = [
        (level.sessions, level.latency.p95)
        for level in levels
        if level.answered and level.latency.p95 is not None
    ]
    work = most.processor_s / most.answered
    return Measured(work, answering, alone.latency.p95, told.every_s, told.machine.cores, tuple(seen))


def explained(calls: int, p95_ms: float, known: Measured, planned: Plan) -> str:
    """Return the plan, its formula with the figures in it, and what it assumes, for people."""
    load = planned.busy * known.cores
    return f"""\
{planned.machines} machine{"s" if planned.machines > 1 else ""} of {known.cores} cores for {calls} calls: \
p95 about {planned.p95_ms:.0f} ms (wanted {p95_ms:.0f}), {100 * planned.busy:.0f} % busy

measured   work = {known.work_s:.2f} s of processor a turn, and a turn every {known.every_s:.3g} s of a call;
           alone: s = {known.answer_s:.3f} s of models' work for an answer, a p95 of {known.alone_ms:.0f} ms
each       {planned.calls_each:.1f} calls: a = calls / every * work = {load:.2f} erlangs on c = {known.cores}
busy       a / c = {planned.busy:.2f}, at most {MOST_BUSY}
waits      C(c, a) = {planned.waits:.3f} of the turns (Erlang C)
wait p95   ln(C / 0.05) * s / (c - a) = {planned.wait_p95_ms:.0f} ms, 0 where C < 0.05
p95        {known.alone_ms:.0f} + {planned.wait_p95_ms:.0f} = {planned.p95_ms:.0f} ms
on one     {", ".join(_compared(known))}

Assumed: turns come at random (Poisson), answers scatter exponentially and each is one job on one core,
calls are spread evenly and stay on their machine, all machines are like the measured one and have memory
enough. No machine gets more calls than were answered in time where it was seen that more were not."""


def _compared(known: Measured) -> list[str]:
    """Return what was measured with so many callers on one machine, and what the formula says of it."""
    said = []
    for callers, p95 in known.seen:
        planned = on(1, callers, known)
        formula = f"{planned.p95_ms:.0f}" if planned else "no end"
        said.append(f"{callers}: {p95:.0f} ms (planned {formula})")
    return said
