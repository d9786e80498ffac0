"""The waits that formulas give, compared with simulated queues of the same replicas."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from statistics import fmean
from typing import Any

import numpy as np
import pytest
import simpy
from hypothesis import given
from hypothesis import strategies as st

from rejoinder.agent.bench.planning import amdahl, queues
from rejoinder.agent.bench.planning.fleet import Routing, wait_of
from rejoinder.agent.bench.planning.pools import Pool, ReplicaJob
from rejoinder.agent.bench.planning.queues import (
    ENDLESS_WAIT,
    RING_POINTS,
    OfferedLoad,
    Wait,
    alike,
    erlang_c,
    pooled,
    sticky,
)

WITHIN = 0.1
"""Largest deviation of a simulated figure from the formula's."""
JOBS = 30_000


def simulated(
    routing: Routing, servers: int, work: OfferedLoad, calls: int = 1, draw: Callable[[], float] | None = None
) -> list[float]:
    """Return the seconds that urgent jobs waited. draw: a service time whose mean is 1."""
    env, generator = simpy.Environment(), random.Random(0)
    drawn = draw or (lambda: generator.expovariate(1.0))
    pool = Pool(env, servers, 1, routing, random.Random(1), 0.5, 5.0, lambda job: None)
    waits: list[float] = []

    def arrive() -> Iterator[simpy.Event]:
        for _ in range(JOBS):
            yield env.timeout(generator.expovariate(work.load / work.service_s))
            urgent, came = generator.random() < work.urgent, env.now
            answered, name = env.event() if urgent else None, hash((generator.randrange(calls), 7))
            job = ReplicaJob(answered, name, work.service_s * drawn(), 0.0, urgent)

            def begun(event: Any, came: float = came) -> None:
                waits.append(env.now - came)

            if answered is not None:
                answered.callbacks.append(begun)
            pool.submit(job)

    env.process(arrive())
    env.run()
    assert pool.worked() == pytest.approx(JOBS * work.service_s, rel=0.05), "all jobs ran"
    return waits


@pytest.mark.parametrize(("servers", "load", "urgent"), [(1, 0.6, 1.0), (3, 1.8, 1.0), (3, 2.0, 0.3)])
def test_erlang_c_is_the_wait_of_a_simulated_queue(servers: int, load: float, urgent: float) -> None:
    work = OfferedLoad(load, 0.2, urgent=urgent)
    waits, formula = simulated("pooled", servers, work), pooled(servers, work)
    assert fmean(waits) == pytest.approx(formula.mean, rel=WITHIN)
    assert fmean(wait > 1e-9 for wait in waits) == pytest.approx(erlang_c(servers, load), rel=WITHIN)
    if urgent == 1.0:
        assert np.quantile(waits, 0.95) == pytest.approx(formula.quantile(0.95), rel=WITHIN)


@pytest.mark.parametrize("shape", [4.0, 0.5])
def test_allen_and_cunneen_fit_other_service_times(shape: float) -> None:
    generator, work = random.Random(2), OfferedLoad(1.8, 0.2, 1.0 / shape)
    waits = simulated("pooled", 3, work, draw=lambda: generator.gammavariate(shape, 1.0 / shape))
    assert fmean(waits) == pytest.approx(pooled(3, work).mean, rel=WITHIN)


@pytest.mark.parametrize("busy", [0.5, 0.8])
def test_the_shorter_of_two_queues(busy: float) -> None:
    work = OfferedLoad(100 * busy, 0.2)
    waits, formula = simulated("two choices", 100, work), queues.two_choices(100, work)
    assert fmean(waits) == pytest.approx(formula.mean, rel=WITHIN)
    assert formula.mean > 5 * pooled(100, work).mean, "one queue for all would promise far less"


def test_a_hash_of_the_session_gives_some_replicas_more() -> None:
    work, calls = OfferedLoad(60.0, 0.2, urgent=0.5), 10_000
    waits, formula = simulated("sticky", 100, work, calls), sticky(100, calls, work)
    assert fmean(waits) == pytest.approx(formula.mean, rel=WITHIN)
    assert formula.mean > pooled(1, OfferedLoad(0.6, 0.2, urgent=0.5)).mean, "uneven is worse than even"


def test_a_ring_is_less_even_than_a_uniform_hash() -> None:
    """A uniform hash would give a variance of 40, and 0.6 % of the calls a replica that is always busy."""
    replicas, each = 3_000, 40
    pool = Pool(simpy.Environment(), replicas, 1, "sticky", random.Random(0), 0.5, 5.0, lambda job: None)
    generator, calls = random.Random(1), each * replicas
    for _ in range(calls):
        pool.submit(ReplicaJob(None, generator.getrandbits(60), 1.0, 1.0, True))
    loads = [one.load for one in pool.replicas]
    assert np.var(loads) == pytest.approx(each * (1.0 + each / RING_POINTS), rel=WITHIN)
    full = sum(load for load in loads if 0.7 * load >= each) / calls
    formula = sticky(replicas, calls, OfferedLoad(0.7 * replicas, 0.2)).full
    assert full == pytest.approx(formula, abs=0.01), "three standard deviations"
    assert formula > 0.02


def test_calls_of_a_dead_replica_go_to_the_next_ones_on_the_ring() -> None:
    env = simpy.Environment()
    pool = Pool(env, 20, 1, "sticky", random.Random(0), 0.5, 5.0, lambda job: None)
    dead = pool.replicas[0]
    for name in range(2_000):
        pool.submit(ReplicaJob(None, name, 100.0, 100.0, True))
    before, moving = [one.load for one in pool.replicas], dead.load
    pool.kill(dead)
    env.run(1.0)
    gained = [one.load - had for one, had in zip(pool.replicas[1:], before[1:], strict=True)]
    assert dead.load == 0 and sum(gained) == moving
    assert sum(more > 0 for more in gained) > 10, "its hundred places have many neighbours"


@given(st.integers(1, 200), st.floats(0.01, 0.99), st.floats(0.0, 4.0))
def test_one_server_is_pollaczek_and_khinchine(servers: int, busy: float, variation: float) -> None:
    work = OfferedLoad(busy, 0.3, variation)
    assert pooled(1, work).mean == pytest.approx(busy * 0.3 * (1 + variation) / 2 / (1 - busy))
    shared = OfferedLoad(busy * servers, 0.3, variation)
    assert 0.0 <= pooled(servers, shared).mean <= pooled(1, work).mean + 1e-9
    assert queues.two_choices(servers, shared).mean <= pooled(1, work).mean + 1e-9


@pytest.mark.parametrize("routing", ["sticky", "two choices", "pooled"])
def test_more_work_than_time_has_no_end(routing: Routing) -> None:
    wait = wait_of(routing, 3, 50, OfferedLoad(60.0, 0.2))
    assert wait.overloaded > 0.99 and wait.longer(1e6) > 0.99
    assert math.isinf(queues.quantile(queues.added([wait.grid(), wait.grid(), wait.grid()]), 0.5))


def test_urgent_jobs_have_an_end_where_the_others_have_none() -> None:
    wait = pooled(1, OfferedLoad(1.5, 0.2, urgent=0.2))
    assert wait == Wait(1.0, pytest.approx(0.2 / 0.7))
    assert pooled(1, OfferedLoad(1.5, 0.2, urgent=0.8)) is ENDLESS_WAIT


def test_distributions_are_added() -> None:
    waits = [alike(Wait(0.5, 0.2)), alike(Wait(1.0, 0.3))]
    generator = np.random.default_rng(0)
    drawn = generator.exponential(0.3, 400_000) + generator.exponential(0.2, 400_000) * (
        generator.random(400_000) < 0.5
    )
    whole = queues.added([queues.samples([1.0]), *(wait.grid() for wait in waits)])
    assert whole.sum() == pytest.approx(1.0)
    for share in (0.5, 0.95, 0.99):
        assert queues.quantile(whole, share) == pytest.approx(1.0 + np.quantile(drawn, share), abs=0.01)


def test_amdahl() -> None:
    assert amdahl.speedup(0.0, 8) == 8.0 and amdahl.speedup(1.0, 8) == 1.0
    assert amdahl.speedup(0.05, 1_000) == pytest.approx(19.6, abs=0.1) and amdahl.most(0.05) == 20.0
    assert math.isinf(amdahl.most(0.0))
