"""The wait in a queue: Erlang's formula C, and what extends it to how replicas really get their requests.

Arrivals are Poisson. Each formula returns a ``Wait`` whose tail is exponential. That is exact for pooled
servers with exponential service times, and the usual approximation elsewhere (Whitt, "Approximations for the
GI/G/m Queue", Production and Operations Management 2(2), 1993).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

GRID_S = 0.001
"""Step of the grid on which distributions are added, in seconds."""
GRID_STEPS = 1 << 15
"""Steps of that grid: 32 s. What takes longer counts as so long."""
RING_POINTS = 100
"""Places of each replica on the hash ring, as in Ray's ``ConsistentHashRouter`` (DEFAULT_VIRTUAL_NODES)."""
SHORTEST_TAIL = 1e-9
"""Share of jobs that no formula looks further than."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait with P(wait > t) = probability * exp(-t / mean_s).

    mean_s: the mean of those that wait, in seconds.
    """

    probability: float
    mean_s: float

    @property
    def mean(self) -> float:
        """The mean in seconds over all jobs, also those that do not wait."""
        return self.probability * self.mean_s if self.probability else 0.0

    def longer(self, seconds: float) -> float:
        """Return the share of jobs that wait longer."""
        return self.probability * math.exp(-seconds / self.mean_s) if self.probability else 0.0

    def quantile(self, share: float) -> float:
        """Return the seconds within which a share of the jobs begins."""
        if self.probability <= 1.0 - share:
            return 0.0
        return self.mean_s * math.log(self.probability / (1.0 - share))


NO_WAIT = Wait(0.0, 0.0)
"""The wait at an idle server."""
ENDLESS_WAIT = Wait(1.0, math.inf)
"""The wait at a server that gets more work than it can do."""


@dataclass(frozen=True, slots=True)
class OfferedLoad:
    """The jobs that a group of equal servers gets.

    load: erlangs, which are jobs per second times their mean service time. service_s: that mean.
    variation: squared coefficient of variation of the service times: 0 constant, 1 exponential.
    urgent: share of the load that is served first, without interrupting a job. The wait is that of its jobs.
    """

    load: float
    service_s: float
    variation: float = 1.0
    urgent: float = 1.0

    def scaled(self, load: float) -> OfferedLoad:
        """Return as many jobs of the same kind as make this load."""
        return replace(self, load=load)

    @property
    def residual(self) -> float:
        """The mean rest of a running job that an arrival finds, as a multiple of a job."""
        return (1.0 + self.variation) / 2.0


def waiting(work: OfferedLoad, wait_s: float) -> float:
    """Return how many jobs wait on average, by Little's law: jobs per second times their mean wait.

    Source: Little, "A Proof for the Queuing Formula: L = lambda W", Operations Research 9(3), 1961.
    """
    return work.load / work.service_s * wait_s


def erlang_c(servers: int, load: float) -> float:
    """Return the probability that a job has to wait; ``load`` is in erlangs and below ``servers``.

    By the recurrence of Erlang's formula B, which no factorial can overflow: B(0) = 1,
    B(n) = load B(n-1) / (n + load B(n-1)), and C = B / (1 - busy (1 - B)). Source: Erlang, "Solution of some
    Problems in the Theory of Probabilities of Significance in Automatic Telephone Exchanges", 1917; the
    recurrence: Cooper, "Introduction to Queueing Theory", 2nd edition, 1981, chapter 3.
    """
    blocked = 1.0
    for count in range(1, servers + 1):
        blocked = load * blocked / (count + load * blocked)
    return blocked / (1.0 - load / servers * (1.0 - blocked))


def pooled(servers: int, work: OfferedLoad) -> Wait:
    """Return the wait if all servers take from one queue.

    The mean is C s / (c - a) times (1 + variation) / 2: Allen and Cunneen's formula for Poisson arrivals
    (Allen, "Probability, Statistics, and Queueing Theory", 2nd edition, 1990, chapter 5). For one server that
    is Pollaczek and Khinchine's, which is exact. Urgent jobs wait C s / (c - urgent a): Cobham, "Priority
    Assignment in Waiting Line Problems", Operations Research 2(1), 1954. They have an end even where there is
    more work than time, and the other jobs have none.
    """
    if work.urgent * work.load >= servers:
        return ENDLESS_WAIT
    if work.load >= servers:
        return Wait(1.0, work.residual * work.service_s / (servers - work.urgent * work.load))
    waits = erlang_c(servers, work.load)
    return Wait(waits, work.residual * work.service_s / (servers - work.urgent * work.load))


def two_choices(servers: int, work: OfferedLoad) -> Wait:
    """Return the wait if each job goes to the shorter queue of two random servers, as in Ray Serve.

    With many servers, from about 20 on, busy ** (2 ** k - 1) of them have at least k jobs. A job finds k at
    both with the square of that (Mitzenmacher, "The Power of Two Choices in Randomized Load Balancing", IEEE
    Transactions on Parallel and Distributed Systems 12(10), 2001). The first of the k jobs is running. An
    urgent job waits for the urgent ones among the others.
    """
    if servers <= 2:
        return pooled(servers, work)
    busy = work.load / servers
    if busy >= 1.0:
        return ENDLESS_WAIT
    waits = busy**2
    if waits < SHORTEST_TAIL:
        return NO_WAIT
    behind, k = 0.0, 2
    while (longer := busy ** (2 ** (k + 1) - 2)) > SHORTEST_TAIL:
        behind, k = behind + longer, k + 1
    return Wait(waits, work.service_s * (work.residual + work.urgent * behind / waits))


@dataclass(frozen=True, slots=True)
class Mixture:
    """A wait that differs from server to server.

    shares: (share of the jobs, their wait); the shares add up to 1.
    """

    shares: tuple[tuple[float, Wait], ...]

    @property
    def mean(self) -> float:
        """The mean in seconds."""
        return sum(share * wait.mean for share, wait in self.shares)

    @property
    def probability(self) -> float:
        """The share of jobs that wait."""
        return sum(share * wait.probability for share, wait in self.shares)

    @property
    def full(self) -> float:
        """The share of jobs at servers that are always busy, and never done with what is not urgent."""
        return sum(share for share, wait in self.shares if wait.probability >= 1.0)

    @property
    def overloaded(self) -> float:
        """The share of jobs at servers that cannot even do their urgent work."""
        return sum(share for share, wait in self.shares if wait is ENDLESS_WAIT)

    def longer(self, seconds: float) -> float:
        """Return the share of jobs that wait longer."""
        return sum(share * wait.longer(seconds) for share, wait in self.shares)

    def grid(self) -> NDArray[np.float64]:
        """Return the distribution on the grid, of shape (GRID_STEPS,).

        Element k is the share of jobs that wait about k steps.
        """
        # Step k holds the waits from k - 0.5 to k + 0.5; the last one holds all that are longer.
        at = (np.arange(GRID_STEPS) + 0.5) * GRID_S
        above = np.zeros(GRID_STEPS)
        for share, wait in self.shares:
            if wait.probability:
                above += share * wait.probability * np.exp(-at / wait.mean_s)
        above = np.minimum(1.0, above)
        above[-1] = 0.0
        steps: NDArray[np.float64] = -np.diff(above, prepend=1.0)
        return steps


def alike(wait: Wait) -> Mixture:
    """Return the wait of servers that are all alike."""
    return Mixture(((1.0, wait),))


def sticky(servers: int, calls: int, work: OfferedLoad) -> Mixture:
    """Return the wait if each call stays with the server that a hash ring chooses for its name.

    Each server is a queue of its own, M/G/1 by Pollaczek and Khinchine. Its share of the ring is the sum of
    ``RING_POINTS`` random arcs, which is beta-distributed, so its number of calls is beta-binomial: with many
    servers that is a negative binomial of shape ``RING_POINTS``. Source: Kotz, Balakrishnan and Johnson,
    "Continuous Multivariate Distributions", volume 1, 2nd edition, 2000, chapter 49 (Dirichlet). A call on
    a full server counts with the others there, so its server has one call and those of the remaining
    ``calls - 1`` that the hash adds, and a larger share of the ring: an arc more.
    """
    each = work.load / calls
    shares = []
    for others, share in _beta_binomial(calls - 1, RING_POINTS + 1, RING_POINTS * (servers - 1)):
        own = OfferedLoad(each * (others + 1), work.service_s, work.variation, work.urgent)
        shares.append((share, pooled(1, own)))
    return Mixture(tuple(shares))


def _beta_binomial(trials: int, yes: int, no: int) -> list[tuple[int, float]]:
    """Return (successes, probability), without those that are too unlikely to matter.

    yes, no: parameters of the beta distribution of the chance.
    """
    if not no:
        return [(trials, 1.0)]
    found = []
    for successes in range(trials + 1):
        failures = trials - successes
        log = math.lgamma(trials + 1) - math.lgamma(successes + 1) - math.lgamma(failures + 1)
        log += _log_beta(successes + yes, failures + no) - _log_beta(yes, no)
        probability = math.exp(log)
        if probability > SHORTEST_TAIL:
            found.append((successes, probability))
        elif successes > trials * yes / (yes + no):
            break
    return found


def _log_beta(one: int, other: int) -> float:
    return math.lgamma(one) + math.lgamma(other) - math.lgamma(one + other)


def samples(seconds: Sequence[float]) -> NDArray[np.float64]:
    """Return the distribution of measured times on the grid, of shape (GRID_STEPS,).

    A time below 0 counts as 0.
    """
    places = np.clip(np.rint(np.asarray(seconds) / GRID_S).astype(int), 0, GRID_STEPS - 1)
    counts: NDArray[np.float64] = np.bincount(places, minlength=GRID_STEPS) / len(seconds)
    return counts


def added(parts: Sequence[NDArray[np.float64]]) -> NDArray[np.float64]:
    """Return the distribution of the sum of independent times, each of shape (GRID_STEPS,)."""
    total = np.zeros(GRID_STEPS)
    total[0] = 1.0
    for part in parts:
        both = np.fft.rfft(total, 2 * GRID_STEPS) * np.fft.rfft(part, 2 * GRID_STEPS)
        whole = np.maximum(0.0, np.fft.irfft(both))
        total = whole[:GRID_STEPS]
        total[-1] += whole[GRID_STEPS:].sum()
    return total


def quantile(distribution: NDArray[np.float64], share: float) -> float:
    """Return the quantile in seconds of a distribution of shape (GRID_STEPS,); infinity beyond the grid."""
    place = int(np.searchsorted(np.cumsum(distribution), share))
    return place * GRID_S if place < GRID_STEPS - 1 else math.inf
