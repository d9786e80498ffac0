"""Ten thousand simulated calls on the machines that a plan gives them."""

from __future__ import annotations

import pytest
from support.planning.reports import LOAD, OVERHEAD

from rejoinder.agent.bench.planning.fleet import PlanTarget, plan_fleet, with_calls
from rejoinder.agent.bench.planning.measured import read_service
from rejoinder.agent.bench.planning.simulation import Disturbances, Simulation

pytestmark = pytest.mark.scale
CALLS = 10_000
WITHIN = 0.1


def test_ten_thousand_calls_agree_with_the_formulas() -> None:
    service = read_service(LOAD, OVERHEAD)
    fleet = plan_fleet(service, PlanTarget(CALLS, 0.8))
    happening = Disturbances(phase_s=10.0, killed=0.05, start_s=2.0)
    calm, burst, failures, restart = Simulation(service, fleet, 0, happening).run()
    for phase in (calm, burst):
        stats = phase.summary()
        measured = [value / 1000.0 for value in (stats.p50, stats.p95, stats.p99) if value]
        assert stats.count > 10_000
        assert measured == pytest.approx(with_calls(service, fleet, phase.calls), rel=WITHIN)
    assert (calm.calls, burst.calls, failures.calls) == (CALLS, 1.2 * CALLS, CALLS)
    assert failures.lost > 0 and failures.retried > 0
    assert restart.lost == restart.retried == 0 and restart.moved >= CALLS
    for phase in (failures, restart):
        late = sum(each > 1000.0 * fleet.wanted.p95_s for each in phase.latencies_ms)
        assert late < 0.1 * len(phase.latencies_ms), "not even twice the planned share is late"
