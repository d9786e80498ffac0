"""Plans two tiers: call servers, which hold sockets, and replicas of models, which hold weights."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from rejoinder.agent.bench.load import REST_SECONDS
from rejoinder.agent.bench.planning import amdahl, queues
from rejoinder.agent.bench.planning.measured import Service, Stage
from rejoinder.agent.bench.planning.network import CallTraffic, between_tiers, wires
from rejoinder.agent.bench.planning.one_machine import NoPlan
from rejoinder.agent.bench.planning.queues import Mixture, OfferedLoad, Wait

Routing = Literal["sticky", "two choices", "pooled"]
"""How a request finds its replica: by a hash of the session, the shorter of two queues, or one queue."""
ROUTINGS: Mapping[str, Routing] = {
    "stt": "sticky",
    "turn": "two choices",
    "tts": "two choices",
    "llm": "pooled",
}
"""The routing of each role: a recogniser keeps a turn's audio; a server of language models has a balancer."""
MOST_OVERLOADED = 0.001
"""Largest share of calls at replicas that a hash gives more work than they can do."""
REPLICA_GROWTH = 1.04
"""A role that makes answers late gets its replicas times this factor, until they are in time."""
MOST_REPLICAS = 1_000_000
"""Largest number of replicas of a role."""


@dataclass(frozen=True, slots=True)
class PlanTarget:
    """What the plan is for.

    calls: at the same time. p95_s: wanted latency. headroom: share of each server's time that stays free.
    spare: machines of each tier that may fail without a loss of head-room. call_cores, model_cores: cores of
    a machine of each tier. llm_slots: replies that one server of the language model writes at a time, 0 for
    replicas on the model servers. hop_s: time of a request from a call server to a replica and back.
    serial_s: seconds of a turn in a place that all machines share, such as a database. wire: of the callers.
    prices: money per hour of a machine by "calls", "models" and "llm", and per "gb" of traffic to callers.
    """

    calls: int
    p95_s: float
    headroom: float = 0.3
    spare: int = 1
    call_cores: int = 4
    model_cores: int = 16
    llm_slots: int = 0
    hop_s: float = 0.0
    serial_s: float = 0.0
    wire: str = "realtime"
    prices: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Group:
    """The replicas of one role. slots: requests at a time in each. wait: of the answers."""

    stage: Stage
    replicas: int
    slots: int
    routing: Routing
    work: OfferedLoad
    wait: Mixture

    @property
    def busy(self) -> float:
        """The share of time in which the slots work."""
        return self.work.load / (self.replicas * self.slots)


@dataclass(frozen=True, slots=True)
class Money:
    """Money per hour, by what it is for, and per minute of a call."""

    hourly: Mapping[str, float]
    call_minute: float

    @property
    def total(self) -> float:
        """The sum per hour."""
        return sum(self.hourly.values())


@dataclass(frozen=True, slots=True)
class Fleet:
    """A plan of two tiers.

    processes: call servers, of which each has one event loop. call_machines, model_machines, llm_machines:
    with the spare ones. traffic: of one call with its client. inner: bytes per second between the tiers, by
    role. cores: of call servers and replicas, without servers of language models. speedup, most_speedup:
    Amdahl's, of these cores, and of any number of them. shared_busy: share of time
    in which the shared place works.
    """

    wanted: PlanTarget
    turns: float
    processes: int
    process_busy: float
    call_machines: int
    groups: tuple[Group, ...]
    model_machines: int
    llm_machines: int
    p50_s: float
    p95_s: float
    p99_s: float
    alone_p95_s: float
    traffic: CallTraffic
    inner: Mapping[str, float]
    cores: float
    speedup: float
    most_speedup: float
    shared_busy: float
    money: Money | None


def wait_of(routing: Routing, servers: int, calls: int, work: OfferedLoad) -> Mixture:
    """Return the wait at replicas with this routing."""
    if routing == "sticky":
        return queues.sticky(servers, calls, work)
    return queues.alike((queues.two_choices if routing == "two choices" else queues.pooled)(servers, work))


def group(stage: Stage, replicas: int, calls: int, every_s: float, wanted: PlanTarget) -> Group:
    """Return the replicas of a role with ``calls`` calls."""
    slots = wanted.llm_slots or 1 if stage.role == "llm" else 1
    routing = ROUTINGS[stage.role]
    work = stage.work(calls / every_s)
    return Group(stage, replicas, slots, routing, work, wait_of(routing, replicas * slots, calls, work))


def fewest(stage: Stage, service: Service, wanted: PlanTarget) -> Group:
    """Return the fewest replicas with head-room, none of which a hash overloads. Raises NoPlan."""
    slots = wanted.llm_slots or 1 if stage.role == "llm" else 1
    load = stage.work(wanted.calls / service.every_s).load
    replicas = max(1, math.ceil(load / ((1.0 - wanted.headroom) * slots)))
    while replicas <= MOST_REPLICAS:
        made = group(stage, replicas, wanted.calls, service.every_s, wanted)
        if made.wait.overloaded <= MOST_OVERLOADED:
            return made
        replicas = math.ceil(replicas * REPLICA_GROWTH)
    raise NoPlan(f"more than {MOST_REPLICAS} replicas of the {stage.role} would be needed")


@lru_cache(maxsize=4)
def _alone(samples: tuple[float, ...]) -> NDArray[np.float64]:
    return queues.samples(samples)


def latency(
    service: Service, groups: tuple[Group, ...], shared: OfferedLoad, hop_s: float
) -> NDArray[np.float64]:
    """Return the distribution of the latency on the grid, of shape (GRID_STEPS,).

    It is what one caller had, the hops, the waits, and the time of the shared place, which counts as
    exponential.
    """
    alone = _alone(tuple(one + service.hops * hop_s for one in service.alone_s()))
    waits = [one.wait.grid() for one in groups]
    if shared.load:
        both = queues.pooled(1, shared), Wait(1.0, shared.service_s)
        waits += [queues.alike(one).grid() for one in both]
    return queues.added([alone, *waits])


def shared_work(service: Service, wanted: PlanTarget, calls: int) -> OfferedLoad:
    """Return the work of the place that all machines share."""
    return OfferedLoad(calls / service.every_s * wanted.serial_s, wanted.serial_s)


def plan_fleet(service: Service, wanted: PlanTarget) -> Fleet:
    """Return the plan with few machines that answers 95 % of the turns in time. Raises NoPlan."""
    for stage in service.stages:
        if stage.threads > wanted.model_cores and not (stage.role == "llm" and wanted.llm_slots):
            raise NoPlan(
                f"the engine of the {stage.role} was measured with {stage.threads} threads, so a replica "
                f"does not fit a machine of {wanted.model_cores} cores: give larger ones"
            )
    shared = shared_work(service, wanted, wanted.calls)
    if shared.load >= 1.0:
        raise NoPlan(
            f"the shared place has {shared.load:.1f} s of work a second: no number of machines is enough"
        )
    alone = queues.quantile(latency(service, (), shared, wanted.hop_s), 0.95)
    if alone > wanted.p95_s:
        raise NoPlan(
            f"with idle models the p95 is {1000 * alone:.0f} ms already: more machines cannot reduce it"
        )
    groups = tuple(fewest(stage, service, wanted) for stage in service.stages)
    while True:
        whole = latency(service, groups, shared, wanted.hop_s)
        if queues.quantile(whole, 0.95) <= wanted.p95_s:
            return _fleet(service, wanted, groups, whole, alone)
        slowest = max(groups, key=lambda one: one.wait.longer(wanted.p95_s / 10.0))
        if slowest.replicas > MOST_REPLICAS:
            needed = f"more than {MOST_REPLICAS} replicas would be needed"
            raise NoPlan(f"{needed}: measure more turns, or choose a larger p95")
        more = math.ceil(slowest.replicas * REPLICA_GROWTH)
        grown = group(slowest.stage, more, wanted.calls, service.every_s, wanted)
        groups = tuple(grown if one is slowest else one for one in groups)


def _fleet(
    service: Service,
    wanted: PlanTarget,
    groups: tuple[Group, ...],
    whole: NDArray[np.float64],
    alone: float,
) -> Fleet:
    turns = wanted.calls / service.every_s
    spent = wanted.calls * service.call_cores
    processes = math.ceil(spent / (1.0 - wanted.headroom))
    served = [one for one in groups if one.stage.role == "llm" and wanted.llm_slots]
    ours = [one for one in groups if one not in served]
    cores = sum(one.replicas * one.stage.threads for one in ours)
    call_machines = math.ceil(processes / wanted.call_cores) + wanted.spare
    model_machines = math.ceil(cores / wanted.model_cores) + wanted.spare if cores else 0
    llm_machines = sum(one.replicas + wanted.spare for one in served)
    work = sum(one.work.load * one.stage.threads for one in ours) + spent
    serial = turns * wanted.serial_s / (work + turns * wanted.serial_s)
    traffic = wires()[wanted.wire]
    speech = service.every_s - REST_SECONDS
    inner = {
        one.stage.role: turns
        * between_tiers(one.stage.role, speech, REST_SECONDS)
        * (one.stage.jobs if one.stage.role == "turn" else 1.0)
        for one in groups
    }
    machines = {"calls": call_machines, "models": model_machines, "llm": llm_machines}
    p50, p95, p99 = percentiles(whole)
    return Fleet(
        wanted,
        turns,
        processes,
        spent / processes,
        call_machines,
        groups,
        model_machines,
        llm_machines,
        p50,
        p95,
        p99,
        alone,
        traffic,
        inner,
        processes + cores,
        amdahl.speedup(serial, processes + cores),
        amdahl.most(serial),
        turns * wanted.serial_s,
        _money(wanted, machines, traffic),
    )


def _money(wanted: PlanTarget, machines: Mapping[str, int], traffic: CallTraffic) -> Money | None:
    if not wanted.prices:
        return None
    hourly = {name: number * wanted.prices.get(name, 0.0) for name, number in machines.items() if number}
    hourly["gb"] = wanted.calls * traffic.sent * 3600.0 / 1e9 * wanted.prices.get("gb", 0.0)
    return Money(hourly, sum(hourly.values()) / (wanted.calls * 60.0))


def percentiles(whole: NDArray[np.float64]) -> tuple[float, float, float]:
    """Return p50, p95 and p99 in seconds of a distribution on the grid, of shape (GRID_STEPS,)."""
    p50, p95, p99 = (queues.quantile(whole, share) for share in (0.5, 0.95, 0.99))
    return p50, p95, p99


def with_calls(service: Service, fleet: Fleet, calls: int) -> tuple[float, float, float]:
    """Return p50, p95 and p99 of the latency in seconds of the same machines with another number of calls."""
    groups = tuple(
        group(one.stage, one.replicas, calls, service.every_s, fleet.wanted) for one in fleet.groups
    )
    shared = shared_work(service, fleet.wanted, calls)
    if shared.load >= 1.0:
        return math.inf, math.inf, math.inf
    whole = latency(service, groups, shared, fleet.wanted.hop_s)
    return percentiles(whole)
