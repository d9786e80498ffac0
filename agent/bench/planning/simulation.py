"""Simulates thousands of calls on two tiers of servers: discrete events, on measured service times.

Time is virtual. The same seed gives the same result. Replicas get their requests as in ``models/ray``: by a
hash of the session, or the shorter of two queues, and each runs urgent jobs first.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from rejoinder.agent.bench.load import REST_SECONDS, SCATTER
from rejoinder.agent.bench.planning.fleet import Fleet, Routing
from rejoinder.agent.bench.planning.measured import Service, Stage
from rejoinder.agent.bench.planning.pools import Pool, ReplicaJob
from rejoinder.agent.bench.reports.waterfall import Summary, summarise
from rejoinder.models.hints import needing

with needing("bench", "the simulation of a plan"):
    import simpy

Steps = Generator[simpy.Event, Any, None]
"""A process of the simulation."""
BEFORE_ANSWERS = ("stt", "turn")
"""The roles whose other jobs come while the caller speaks. The others' come after the answer begins."""
AFTERMATH_SECONDS = 5.0
"""Time after a phase until what it caused is over, in simulated seconds."""


@dataclass(frozen=True, slots=True)
class Disturbances:
    """What happens to the servers, besides calls.

    phase_s: length of each phase. burst: share of calls that come in addition. killed: share of all replicas,
    and of all call servers, that die in the phase of failures. at_once: share of a tier that is replaced at
    the same time. start_s: until a replica that died or was replaced is ready. notice_s: until its requests
    go to another one. return_s: until a client whose server died, or hands its calls over, is back.
    """

    phase_s: float = 15.0
    burst: float = 0.2
    killed: float = 0.02
    at_once: float = 0.125
    start_s: float = 4.0
    notice_s: float = 0.5
    return_s: float = 1.0


@dataclass(slots=True)
class Phase:
    """What callers noticed in a part of the simulation.

    calls: at the end. latencies_ms: of the answers. waits_ms: of their requests in the queues of a role.
    lost: turns whose call server died. retried: requests whose replica died. cut: replies that ended early,
    because their language model's server died. moved: calls that changed their server. busy: share of time
    in which the replicas of a role worked.
    """

    name: str
    calls: int = 0
    latencies_ms: list[float] = field(default_factory=list)
    waits_ms: dict[str, list[float]] = field(default_factory=dict)
    lost: int = 0
    retried: int = 0
    cut: int = 0
    moved: int = 0
    busy: dict[str, float] = field(default_factory=dict)

    @property
    def calm(self) -> bool:
        """Whether all servers ran, as the formulas assume."""
        return self.name in ("calm", "burst")

    def summary(self) -> Summary:
        """Return the statistics of the latencies."""
        return summarise(self.latencies_ms)


class Simulation:
    """The calls and the servers of one plan.

    events: what happens to the servers. exponential: service times are exponential
    with the measured means, as Erlang's formula has them.
    """

    def __init__(
        self,
        service: Service,
        fleet: Fleet,
        seed: int = 0,
        events: Disturbances | None = None,
        exponential: bool = False,
    ) -> None:
        self.env = simpy.Environment()
        self._service, self._fleet, self._events = service, fleet, events or Disturbances()
        self._random = random.Random(seed)
        self._exponential = exponential
        self._phase = Phase("warming up")
        notice, start = self._events.notice_s, self._events.start_s
        self.pools = {
            one.stage.role: Pool(
                self.env, one.replicas, one.slots, one.routing, random.Random(f"{seed}/{one.stage.role}"),
                notice, start, self._count_retry,
            )
            for one in fleet.groups
        }  # fmt: skip
        if fleet.wanted.serial_s:
            pooled: Routing = "pooled"
            self.pools["shared"] = Pool(
                self.env, 1, 1, pooled, random.Random(f"{seed}/shared"), notice, start, self._count_retry
            )
        self._servers: list[list[SimulatedCall]] = [[] for _ in range(fleet.processes)]
        self._calls: list[SimulatedCall] = []
        self._turns = list(zip(service.rest_s, *[one.answer_s for one in self._answering()], strict=True))

    def _answering(self) -> list[Stage]:
        return [stage for stage in self._service.stages if stage.answer_s]

    def run(self, chaos: bool = True) -> list[Phase]:
        """Return the phases: calm, and with ``chaos`` a burst, failures and rolling restarts.

        Reference counts free all that a simulation drops. The garbage collector would visit each waiting
        event again and again, for a third of the time.
        """
        collects = gc.isenabled()
        gc.disable()
        try:
            return self._phases(chaos)
        finally:
            if collects:
                gc.enable()

    def _phases(self, chaos: bool) -> list[Phase]:
        for _ in range(self._fleet.wanted.calls):
            self._call()
        self.env.run(2.0 * self._service.every_s)
        phases = [self._during("calm")]
        if chaos:
            extra = [self._call() for _ in range(round(self._events.burst * self._fleet.wanted.calls))]
            phases.append(self._during("burst"))
            for call in extra:
                call.ended = True
            self._settle()
            self.env.process(self._fail())
            phases.append(self._during("failures"))
            self._settle()
            restarts = [self.env.process(self._replace(pool)) for pool in self._replaced()]
            restarts.append(self.env.process(self._restart_servers()))
            phases.append(self._during("restart", self.env.all_of(restarts)))
        return phases

    def _settle(self) -> None:
        self._phase = Phase("settling")
        self.env.run(self.env.now + AFTERMATH_SECONDS)

    def _during(self, name: str, until: simpy.Event | None = None) -> Phase:
        self._phase = phase = Phase(name)
        worked = {role: pool.worked() for role, pool in self.pools.items()}
        began = self.env.now
        self.env.run(self.env.now + self._events.phase_s if until is None else until)
        for role, pool in self.pools.items():
            phase.busy[role] = (pool.worked() - worked[role]) / (self.env.now - began) / pool.size
        phase.calls = sum(not call.ended for call in self._calls)
        self._calls = [call for call in self._calls if not call.ended]
        return phase

    # --- calls ----------------------------------------------------------------------------------------------

    def _call(self) -> SimulatedCall:
        call = SimulatedCall(self._random.getrandbits(60))
        self._calls.append(call)
        self._attach(call)
        self.env.process(self._talk(call))
        return call

    def _attach(self, call: SimulatedCall) -> None:
        """Give a call to the less busy of two call servers."""
        one, other = self._random.choice(self._servers), self._random.choice(self._servers)
        (one if len(one) <= len(other) else other).append(call)

    def _talk(self, call: SimulatedCall) -> Steps:
        every = self._service.every_s
        yield self.env.timeout(self._random.uniform(0.0, every))
        while not call.ended:
            self.env.process(self._turn(call))
            gap = REST_SECONDS * self._random.uniform(1.0 - SCATTER, 1.0 + SCATTER)
            yield self.env.timeout(every - REST_SECONDS + gap)

    def _turn(self, call: SimulatedCall) -> Steps:
        """Speak, wait for the answer, and hear it."""
        for stage in self._service.stages:
            if stage.role in BEFORE_ANSWERS:
                self._others(stage, call, self._service.every_s - REST_SECONDS)
        yield self.env.timeout(self._service.every_s - REST_SECONDS)
        phase, began, lives = self._phase, self.env.now, call.lives
        rest, *answers = self._random.choice(self._turns)
        if "shared" in self.pools:
            yield from self._ask("shared", call, self._exponential_time(self._fleet.wanted.serial_s), None)
        following = iter(answers)
        for stage in self._service.stages:
            answer = next(following) if stage.answer_s else 0.0
            yield from self._ask(stage.role, call, *self._times(stage, answer))
        if call.lives != lives:
            phase.lost += 1
            return
        away = max(0.0, call.away_until - self.env.now)
        hops = self._service.hops * self._fleet.wanted.hop_s
        phase.latencies_ms.append(1000.0 * (self.env.now - began + rest + away + hops))
        for stage in self._service.stages:
            if stage.role not in BEFORE_ANSWERS:
                self._others(stage, call, REST_SECONDS / 2.0)

    def _times(self, stage: Stage, answer: float) -> tuple[float, float | None]:
        """Return the seconds of a job, and those until its answer. None: they are the same."""
        if self._exponential or not stage.answer_s:
            hold = self._exponential_time(stage.first_s)
            return hold, 0.0 if not stage.answer_s else None
        if stage.whole:
            return answer * stage.first_s / fmean(stage.answer_s), answer
        return answer, None

    def _ask(self, role: str, call: SimulatedCall, hold: float, answer: float | None) -> Steps:
        """Wait for the answer of a replica, and note the seconds that its queue took."""
        came, phase, until = self.env.now, self._phase, hold if answer is None else answer
        answered = self.env.event()
        self.pools[role].submit(ReplicaJob(answered, call.name, hold, until, True))
        yield answered
        phase.waits_ms.setdefault(role, []).append(1000.0 * (self.env.now - came - until))

    def _others(self, stage: Stage, call: SimulatedCall, seconds: float) -> None:
        """Ask for a turn's other jobs, spread over some seconds. Nothing waits for them.

        While a partial transcript waits, no further one of its call is asked for.
        """
        urgent = not stage.answer_s
        number = self._number(stage.firsts - 1.0 if urgent else stage.others)
        mean, pool = stage.first_s if urgent else stage.rest_s, self.pools[stage.role]

        def ask(_: simpy.Event) -> None:
            if stage.role == "stt":
                if call.partial is not None and not call.partial.begun:
                    return
                call.partial = job = ReplicaJob(None, call.name, self._exponential_time(mean), 0.0, urgent)
            else:
                job = ReplicaJob(None, call.name, self._exponential_time(mean), 0.0, urgent)
            pool.submit(job)

        for one in range(number):
            self.env.timeout(seconds * (one + 1) / number).callbacks.append(ask)

    def _number(self, mean: float) -> int:
        """Return a whole number of jobs with this mean."""
        return int(mean) + (self._random.random() < mean - int(mean))

    def _exponential_time(self, mean: float) -> float:
        return self._random.expovariate(1.0 / mean) if mean else 0.0

    # --- what happens to the servers ------------------------------------------------------------------------

    def _count_retry(self, job: ReplicaJob) -> None:
        if job.begun and job.answered is not None and job.answered.triggered:
            self._phase.cut += 1
        else:
            self._phase.retried += 1

    def _replaced(self) -> Sequence[Pool]:
        return [pool for role, pool in self.pools.items() if role != "shared"]

    def _fail(self) -> Steps:
        """Kill replicas and call servers, spread over the first half of the phase."""
        victims: list[tuple[Pool, int] | int] = []
        for pool in self._replaced():
            number = max(1, round(self._events.killed * len(pool.replicas)))
            victims += [(pool, place) for place in self._random.sample(range(len(pool.replicas)), number)]
        number = max(1, round(self._events.killed * len(self._servers)))
        victims += self._random.sample(range(len(self._servers)), number)
        self._random.shuffle(victims)
        for victim in victims:
            yield self.env.timeout(self._events.phase_s / 2.0 / len(victims))
            if isinstance(victim, int):
                self._move(victim, lost=True)
            else:
                pool, place = victim
                pool.kill(pool.replicas[place])

    def _replace(self, pool: Pool) -> Steps:
        """Replace all replicas, some at a time, each when it has finished its requests."""
        step = max(1, int(self._events.at_once * len(pool.replicas)))
        for first in range(0, len(pool.replicas), step):
            yield self.env.all_of([pool.replace(one) for one in pool.replicas[first : first + step]])

    def _restart_servers(self) -> Steps:
        """Restart all call servers, some at a time. Their calls go to others."""
        step = max(1, int(self._events.at_once * len(self._servers)))
        for first in range(0, len(self._servers), step):
            for server in range(first, min(first + step, len(self._servers))):
                self._move(server, lost=False)
            yield self.env.timeout(self._events.return_s)

    def _move(self, server: int, lost: bool) -> None:
        """Give the calls of a server to others. lost: the turns that wait for an answer are lost."""
        calls, self._servers[server] = self._servers[server], []
        for call in calls:
            if call.ended:
                continue
            call.lives += lost
            call.away_until = self.env.now + self._events.return_s
            self._phase.moved += 1
            self._attach(call)


@dataclass(slots=True, eq=False)
class SimulatedCall:
    """A call of the simulation.

    name: what a hash sees of it. lives: changes when its server dies. away_until: it has no socket until
    then.
    partial: the last partial transcript that it asked for.
    """

    name: int
    lives: int = 0
    away_until: float = 0.0
    ended: bool = False
    partial: ReplicaJob | None = None
