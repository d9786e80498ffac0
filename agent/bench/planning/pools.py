"""The simulated replicas of one model: queues, routing, failures and replacement."""

from __future__ import annotations

import bisect
import heapq
import random
from collections import deque
from collections.abc import Callable, Generator
from typing import Any

from rejoinder.agent.bench.planning.fleet import Routing
from rejoinder.agent.bench.planning.queues import RING_POINTS
from rejoinder.models.hints import needing

with needing("bench", "the simulation of a plan"):
    import simpy


RING_BITS = 61
"""Bits of a place on the hash ring."""


class ReplicaJob:
    """A request to a replica.

    answered: the event of its answer, None if nothing waits for it. session: of the call, for routing.
    hold_s: seconds for which it takes a slot. answer_s: seconds of them until the answer. urgent: whether it
    is served before jobs that are not. begun: whether a replica has begun it.
    """

    __slots__ = ("answer_s", "answered", "begun", "hold_s", "session", "urgent")

    def __init__(
        self, answered: simpy.Event | None, session: int, hold_s: float, answer_s: float, urgent: bool
    ) -> None:
        self.answered, self.session, self.urgent = answered, session, urgent
        self.hold_s, self.answer_s = hold_s, answer_s
        self.begun = False


class SimulatedReplica:
    """One replica. life: changes when it dies, so that what it ran ends nothing any more."""

    __slots__ = ("accepts", "drained", "free", "life", "queue", "running")

    def __init__(self, slots: int) -> None:
        self.free = slots
        self.queue: list[tuple[bool, int, ReplicaJob]] = []
        self.running: dict[ReplicaJob, float] = {}
        self.accepts = True
        self.life = 0
        self.drained: simpy.Event | None = None

    @property
    def load(self) -> int:
        """The number of jobs, running and queued."""
        return len(self.running) + len(self.queue)


class Pool:
    """The replicas of one role.

    notice_s: time until the jobs of a dead replica go to another one. start_s: time until a new replica is
    ready. retried: is called with each job that was at a replica when it died.
    """

    def __init__(
        self,
        env: simpy.Environment,
        replicas: int,
        slots: int,
        routing: Routing,
        generator: random.Random,
        notice_s: float,
        start_s: float,
        retried: Callable[[ReplicaJob], None],
    ) -> None:
        self.replicas = [SimulatedReplica(slots) for _ in range(replicas)]
        self.size = replicas * slots
        self._env, self._routing, self._random, self._slots = env, routing, generator, slots
        self._notice_s, self._start_s, self._retried = notice_s, start_s, retried
        self._queue: list[tuple[bool, int, ReplicaJob]] = []
        self._free = deque(one for one in self.replicas for _ in range(slots))
        points = RING_POINTS if routing == "sticky" else 0
        ring = sorted(
            (generator.getrandbits(RING_BITS), one) for one in range(replicas) for _ in range(points)
        )
        self._ring_places = [place for place, _ in ring]
        self._ring_replicas = [self.replicas[one] for _, one in ring]
        self._number = 0
        self._worked = 0.0

    def worked(self) -> float:
        """Return the seconds of work so far, that of all slots."""
        running = sum(
            self._env.now - began for replica in self.replicas for began in replica.running.values()
        )
        return self._worked + running

    def submit(self, job: ReplicaJob) -> ReplicaJob:
        """Give a job to a replica, and return it."""
        self._number += 1
        entry = (not job.urgent, self._number, job)
        replica = self._chosen(job)
        if replica is None:
            heapq.heappush(self._queue, entry)
        elif replica.free and not replica.queue:
            self._run(replica, job)
        else:
            heapq.heappush(replica.queue, entry)
        return job

    def _chosen(self, job: ReplicaJob) -> SimulatedReplica | None:
        """Return the replica for a job; None if it waits in the queue that all of them share."""
        if self._routing == "pooled":
            while self._free:
                replica = self._free.popleft()
                if replica.accepts and replica.free:
                    return replica
            return None
        if self._routing == "sticky":
            return self._on_ring(job.session)
        found = [one for _ in range(2) if (one := self._any()) is not None]
        return min(found, key=lambda one: one.load, default=None)

    def _on_ring(self, session: int) -> SimulatedReplica | None:
        """Return the replica of the next point on the ring; the points of dead replicas do not count."""
        first = bisect.bisect_right(self._ring_places, hash((session,)) & ((1 << RING_BITS) - 1))
        points = len(self._ring_replicas)
        for step in range(points):
            if (replica := self._ring_replicas[(first + step) % points]).accepts:
                return replica
        return None

    def _any(self) -> SimulatedReplica | None:
        for _ in range(100):
            if (one := self._random.choice(self.replicas)).accepts:
                return one
        return next((one for one in self.replicas if one.accepts), None)

    def _run(self, replica: SimulatedReplica, job: ReplicaJob) -> None:
        replica.free -= 1
        replica.running[job] = self._env.now
        job.begun = True
        life = replica.life
        if job.answered is not None and job.answer_s < job.hold_s:
            self._env.timeout(job.answer_s).callbacks.append(lambda _: self._answer(replica, job, life))
        self._env.timeout(job.hold_s).callbacks.append(lambda _: self._finish(replica, job, life))

    def _answer(self, replica: SimulatedReplica, job: ReplicaJob, life: int) -> None:
        if replica.life == life and job.answered is not None and not job.answered.triggered:
            job.answered.succeed()

    def _finish(self, replica: SimulatedReplica, job: ReplicaJob, life: int) -> None:
        if replica.life != life:
            return
        self._worked += self._env.now - replica.running.pop(job)
        replica.free += 1
        self._answer(replica, job, life)
        self._next(replica)

    def _next(self, replica: SimulatedReplica) -> None:
        """Give a free slot its next job."""
        if replica.queue:
            self._run(replica, heapq.heappop(replica.queue)[2])
        elif replica.drained is not None:
            if not replica.running and not replica.drained.triggered:
                replica.drained.succeed()
        elif self._queue and replica.accepts:
            self._run(replica, heapq.heappop(self._queue)[2])
        elif self._routing == "pooled":
            self._free.append(replica)

    def kill(self, replica: SimulatedReplica) -> None:
        """End a replica. Its jobs go to others, and a new one replaces it."""
        if not replica.accepts:
            return
        jobs = [*replica.running, *(job for _, _, job in replica.queue)]
        self._worked += sum(self._env.now - began for began in replica.running.values())
        replica.accepts, replica.life = False, replica.life + 1
        replica.queue, replica.running, replica.free = [], {}, self._slots
        self._env.process(self._after_death(replica, jobs))

    def _after_death(self, replica: SimulatedReplica, jobs: list[ReplicaJob]) -> Generator[Any, Any, None]:
        for job in jobs:
            self._retried(job)
        yield self._env.timeout(self._notice_s)
        for job in jobs:
            if job.answered is None or not job.answered.triggered:
                self.submit(job)
        yield self._env.timeout(self._start_s)
        self._begin(replica)

    def replace(self, replica: SimulatedReplica) -> simpy.Process:
        """Replace a replica when it has finished its jobs; the process ends when the new one is ready."""
        return self._env.process(self._replacing(replica))

    def _replacing(self, replica: SimulatedReplica) -> Generator[Any, Any, None]:
        if not replica.accepts:  # it has died, and a new one comes anyway
            return
        replica.accepts = False
        replica.drained = self._env.event()
        if not replica.running and not replica.queue:
            replica.drained.succeed()
        yield replica.drained
        replica.drained = None
        yield self._env.timeout(self._start_s)
        self._begin(replica)

    def _begin(self, replica: SimulatedReplica) -> None:
        replica.accepts = True
        for _ in range(replica.free):
            self._next(replica)
