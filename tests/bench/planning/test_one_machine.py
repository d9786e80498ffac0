"""The number of machines for a number of calls: the formula, checked by textbooks and a simulation."""

from __future__ import annotations

import heapq
import json
import math
import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from rejoinder.agent.bench.planning.one_machine import (
    MOST_PLANNED_BUSY,
    Measured,
    NoPlan,
    explained,
    plan,
    plan_with,
    read_report,
    wait_s,
)
from rejoinder.agent.bench.planning.queues import erlang_c
from rejoinder.agent.bench.reports.waterfall import REST_LABEL
from rejoinder.agent.cli import app as cli

KNOWN = Measured(work_s=0.5, answer_s=0.2, alone_ms=400.0, every_s=6.0, cores=2)


def by_sum(servers: int, load: float) -> float:
    """Erlang's formula C as it is printed, with its sums and factorials."""
    last = load**servers / math.factorial(servers) * servers / (servers - load)
    return last / (sum(load**k / math.factorial(k) for k in range(servers)) + last)


@given(st.integers(1, 40), st.floats(0.01, 0.99))
def test_the_recurrence_is_the_formula(servers: int, busy: float) -> None:
    assert erlang_c(servers, busy * servers) == pytest.approx(by_sum(servers, busy * servers))


def test_one_server_makes_wait_as_often_as_it_is_busy() -> None:
    assert erlang_c(1, 0.7) == pytest.approx(0.7)
    assert erlang_c(2, 1.0) == pytest.approx(1 / 3)
    assert erlang_c(5_000, 4_900.0) == pytest.approx(0.083, abs=0.02), "no factorial overflows"


def test_waits_are_those_of_a_simulated_queue() -> None:
    generator, servers, load, service = random.Random(0), 2, 1.4, 0.5
    free, now, waits = [0.0] * servers, 0.0, []
    for _ in range(200_000):
        now += generator.expovariate(load / service)
        begins = max(now, heapq.heappop(free))
        waits.append(begins - now)
        heapq.heappush(free, begins + generator.expovariate(1 / service))
    waits.sort()
    assert waits[int(0.95 * len(waits))] == pytest.approx(wait_s(servers, load, service), rel=0.05)
    assert sum(wait > 0 for wait in waits) / len(waits) == pytest.approx(erlang_c(servers, load), rel=0.03)


@given(st.integers(1, 5_000), st.floats(450, 5_000))
def test_a_plan_is_the_least_that_does(calls: int, p95_ms: float) -> None:
    planned = plan(calls, p95_ms, KNOWN)
    assert planned.busy <= MOST_PLANNED_BUSY and planned.p95_ms <= p95_ms
    if planned.machines > 1:
        fewer = plan_with(planned.machines - 1, calls, KNOWN)
        assert fewer is None or fewer.busy > MOST_PLANNED_BUSY or fewer.p95_ms > p95_ms


def test_measured_failures_override_the_formula() -> None:
    seen = replace(KNOWN, seen=((1, 400.0), (2, 500.0), (4, 1600.0), (8, 2500.0)))
    assert plan(500, 800.0, KNOWN).machines < plan(500, 800.0, seen).machines == 250
    assert plan(500, 3000.0, seen) == plan(500, 3000.0, KNOWN), "all were in time"


def test_unreachable_targets_are_refused() -> None:
    with pytest.raises(NoPlan, match="p95 of 400 ms"):
        plan(1, 399.0, KNOWN)
    assert plan_with(1, 24, KNOWN) is None, "as much work as there is time"


def test_a_plan_has_no_more_machines_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    needed = plan(500, 800.0, KNOWN).machines
    monkeypatch.setattr("rejoinder.agent.bench.planning.one_machine.MOST_MACHINES", needed)
    assert plan(500, 800.0, KNOWN).machines == needed
    monkeypatch.setattr("rejoinder.agent.bench.planning.one_machine.MOST_MACHINES", needed - 1)
    with pytest.raises(NoPlan, match=f"more than {needed - 1} machines"):
        plan(500, 800.0, KNOWN)


def test_a_plan_shows_its_formula_with_its_figures() -> None:
    said = explained(500, 800.0, KNOWN, plan(500, 800.0, KNOWN))
    for part in (
        "ln(C / 0.05) * s / (c - a)",
        "at most 0.85",
        "Erlang C",
        "Assumed",
        "s = 0.200 s",
        "0.50 s of processor",
        "500 calls",
    ):
        assert part in said


PARTS = [
    ("notice the pause", 30.0),
    ("final transcript", 80.0),
    ("TTS first audio", 20.0),
    (REST_LABEL, 20.0),
]
WATERFALL = [{"name": name, "ms": ms} for name, ms in PARTS]
LEVEL = {
    "sessions": 2,
    "answered": 10,
    "processor_s": 5.0,
    "latency": {"p95": 500.0},
    "waterfall": WATERFALL,
}
REPORT = {
    "every_s": 6.0,
    "machine": {"cores": 4},
    "levels": [LEVEL, {**LEVEL, "sessions": 1, "answered": 5, "processor_s": 4.0, "latency": {"p95": 400.0}}],
}


def test_a_report_is_read() -> None:
    assert read_report(REPORT) == Measured(0.5, 0.1, 400.0, 6.0, 4, ((1, 400.0), (2, 500.0)))


@pytest.mark.parametrize(
    ("report", "why"),
    [
        ({}, "not a report of"),
        ([], "not a report of"),
        ({**REPORT, "levels": []}, "not a report of"),
        ({**REPORT, "machine": {"cores": 0}}, r"machine\.cores: .* greater than 0"),
        ({**REPORT, "every_s": float("inf")}, "every_s: .* finite"),
        ({**REPORT, "levels": [{**LEVEL, "answered": "ten"}]}, r"levels\.0\.answered: "),
        ({**REPORT, "levels": [{**LEVEL, "latency": {"p95": -1.0}}]}, r"latency\.p95: "),
        ({**REPORT, "levels": [{**LEVEL, "processor_s": None}]}, "without --url"),
        ({**REPORT, "levels": [{**LEVEL, "answered": 0, "latency": {"p95": None}}]}, "no processor times"),
    ],
)
def test_a_report_that_cannot_tell_is_refused(report: dict[str, object], why: str) -> None:
    with pytest.raises(NoPlan, match=why):
        read_report(report)


def test_the_command_plans_and_refuses(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    file.write_text(json.dumps(REPORT))
    run = CliRunner().invoke
    done = run(cli.app, ["plan", "--calls", "500", "--p95", "0.8s", "--from", str(file)])
    assert done.exit_code == 0 and "machines of 4 cores for 500 calls" in done.stdout
    assert "1: 400 ms (planned 400), 2: 500 ms (planned 400)" in done.stdout
    never = run(cli.app, ["plan", "--calls", "5", "--p95", "100ms", "--from", str(file)])
    assert never.exit_code == 1 and "more machines cannot reduce it" in never.stderr
    for wrong, word in ((["--p95", "soon"], "800ms"), (["--calls", "0"], "greater than or equal to 1")):
        refused = run(cli.app, ["plan", "--calls", "5", "--from", str(file), *wrong])
        assert refused.exit_code == 2 and word in refused.stderr
    file.write_text("{")
    assert run(cli.app, ["plan", "--calls", "5", "--from", str(file)]).exit_code == 2
