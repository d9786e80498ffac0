"""Plans of two tiers, read from reports, and simulated calls on them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.planning.reports import LOAD, OVERHEAD
from typer.testing import CliRunner

from rejoinder.agent.bench.planning.fleet import Fleet, PlanTarget, latency, plan_fleet, with_calls
from rejoinder.agent.bench.planning.fleet_report import prices_of, tables
from rejoinder.agent.bench.planning.measured import Service, read_service
from rejoinder.agent.bench.planning.network import between_tiers, in_packets, wires
from rejoinder.agent.bench.planning.one_machine import NoPlan
from rejoinder.agent.bench.planning.queues import GRID_S, GRID_STEPS, OfferedLoad
from rejoinder.agent.bench.planning.simulation import Disturbances, Phase, Simulation
from rejoinder.agent.cli import app as cli
from rejoinder.agent.wires.g711 import encode

WITHIN = 0.1
CALLS = 400
WANTED = PlanTarget(CALLS, 0.8)


@pytest.fixture(scope="module")
def service() -> Service:
    return read_service(LOAD, OVERHEAD)


@pytest.fixture(scope="module")
def fleet(service: Service) -> Fleet:
    return plan_fleet(service, WANTED)


@pytest.fixture(scope="module")
def phases(service: Service, fleet: Fleet) -> list[Phase]:
    return Simulation(service, fleet, 0, Disturbances(phase_s=60.0, at_once=0.25)).run()


def test_reports_are_read(service: Service) -> None:
    stt, asked, llm, _ = service.stages
    assert [stage.role for stage in service.stages] == ["stt", "turn", "llm", "tts"]
    assert (service.every_s, service.call_cores, service.hops) == (8.0, 0.005, 3)
    assert stt.others == 7.0 and stt.first_s + 7.0 * stt.rest_s == pytest.approx(0.6)
    assert asked.firsts == 3.0 and asked.first_s == pytest.approx(0.05)
    assert llm.first_s == pytest.approx(0.5) and llm.others == 0.0
    for stage in service.stages:
        assert stage.work(10.0).load == pytest.approx(10.0 * stage.busy_s)
    alone = [sum(one.values()) / 1000.0 for one in LOAD["levels"][0]["turns"]]
    assert service.alone_s() == pytest.approx(alone)


def test_a_plan_has_headroom_and_is_in_time(fleet: Fleet, service: Service) -> None:
    assert fleet.p50_s < fleet.p95_s <= WANTED.p95_s and fleet.alone_p95_s < fleet.p95_s <= fleet.p99_s
    assert all(one.busy <= 0.7 + 1e-9 for one in fleet.groups) and fleet.process_busy <= 0.7
    assert fleet.processes == 3 and fleet.call_machines == 2, "two of four cores each, one of them spare"
    cores = sum(one.replicas * one.stage.threads for one in fleet.groups)
    assert fleet.model_machines == -(-cores // 16) + 1
    sooner = plan_fleet(service, replace(WANTED, p95_s=fleet.p95_s - 0.02))
    assert sooner.p95_s <= fleet.p95_s - 0.02 and sooner.cores > fleet.cores
    assert with_calls(service, fleet, CALLS)[1] == fleet.p95_s < with_calls(service, fleet, 480)[1]


def test_a_language_model_server_writes_several_replies(service: Service, fleet: Fleet) -> None:
    served = plan_fleet(service, replace(WANTED, llm_slots=16))
    llm = served.groups[2]
    assert (llm.replicas, llm.slots, served.llm_machines) == (3, 16, 4)
    assert served.cores < fleet.cores


def test_a_replica_has_a_core_for_each_thread_of_the_measured_engine(fleet: Fleet) -> None:
    large = read_service(
        {**LOAD, "machine": {"cores": 16}, "models": {"stt": None, "tts": "piper:x"}}, OVERHEAD
    )
    assert [stage.threads for stage in large.stages] == [8, 1, 8, 4]
    planned = plan_fleet(large, WANTED)
    replicas = [one.replicas for one in planned.groups]
    assert replicas == [one.replicas for one in fleet.groups], "the seconds are those of all threads together"
    cores = sum(number * threads for number, threads in zip(replicas, [8, 1, 8, 4], strict=True))
    assert planned.cores == planned.processes + cores and planned.model_machines == -(-cores // 16) + 1
    said = str(tables(planned)[-1])
    assert "Recogniser: each replica has 8 cores" in said and "Turn model: each" not in said
    with pytest.raises(NoPlan, match=r"the stt was measured with 8 threads.* machine of 4 cores"):
        plan_fleet(large, replace(WANTED, model_cores=4))
    one_thread = read_service({**LOAD, "machine": {"cores": 16}, "models": {"tts": "hibari:heart"}}, OVERHEAD)
    assert one_thread.stages[-1].threads == 1, "this voice is slower with more threads"


def test_the_shared_place_takes_its_own_time_and_a_wait(service: Service) -> None:
    shared = OfferedLoad(0.5, 0.01)
    whole, without = (
        float((latency(service, (), one, 0.0) * np.arange(GRID_STEPS)).sum()) * GRID_S
        for one in (shared, OfferedLoad(0.0, 0.0))
    )
    assert whole - without == pytest.approx(0.01 / (1.0 - 0.5), rel=0.01), "M/M/1"


def test_amdahl_counts_the_same_work_and_cores(service: Service) -> None:
    """A server of language models is in neither."""
    wanted = replace(WANTED, serial_s=0.001)
    for slots in (0, 16):
        planned = plan_fleet(service, replace(wanted, llm_slots=slots))
        ours = [one for one in planned.groups if one.stage.role != "llm" or not slots]
        work = sum(one.work.load * one.stage.threads for one in ours) + CALLS * service.call_cores
        assert planned.most_speedup == pytest.approx(1.0 + work / planned.shared_busy)


def test_a_shared_place_limits_all_machines(service: Service, fleet: Fleet) -> None:
    shared = plan_fleet(service, replace(WANTED, serial_s=0.001))
    assert shared.shared_busy == pytest.approx(0.05) and shared.speedup < shared.cores
    assert shared.speedup < shared.most_speedup < 2_000 and fleet.speedup == pytest.approx(fleet.cores)
    with pytest.raises(NoPlan, match="shared place"):
        plan_fleet(service, replace(WANTED, serial_s=0.03))


@pytest.mark.parametrize(
    ("load", "overhead", "why"),
    [
        ({}, OVERHEAD, "not a report of rejoinder bench load"),
        (LOAD, {}, "not a report of rejoinder bench overhead"),
        (LOAD, {**OVERHEAD, "levels": OVERHEAD["levels"][:1]}, "no calls that speak"),
        (LOAD, {**OVERHEAD, "vad": "scripted:vad"}, "add --vad silero"),
        (LOAD, {**OVERHEAD, "muted": True}, "without --muted"),
        ({**LOAD, "levels": [{**LOAD["levels"][0], "engines": {}}]}, OVERHEAD, "no times of engines"),
    ],
)
def test_reports_that_cannot_tell_are_refused(load: object, overhead: object, why: str) -> None:
    with pytest.raises(NoPlan, match=why):
        read_service(load, overhead)


def test_latencies_that_no_machine_reaches_are_refused(service: Service) -> None:
    with pytest.raises(NoPlan, match="with idle models"):
        plan_fleet(service, replace(WANTED, p95_s=0.1))


def test_bytes_are_those_of_the_wires() -> None:
    per_call = wires()
    assert per_call["audiosocket"].sent == 50 * (3 + 320 + 52), "TCP without TLS"
    pcm = per_call["pcm"]
    assert (pcm.received, pcm.sent) == (50 * (8 + 960 + 22 + 52), 50 * (4 + 960 + 22 + 52)), "clients mask"
    assert (in_packets(1448), in_packets(1449)) == (1448 + 52, 1449 + 2 * 52)
    assert per_call["realtime"].sent > 50 * (1448 + 2 * 52), "one frame of audio needs two packets"
    mulaw = len(encode(bytes(2 * 160), "mulaw"))
    assert (
        per_call["realtime, G.711"].sent > 50 * mulaw * 4 / 3 and per_call["realtime"].sent > 50 * 960 * 4 / 3
    )
    assert 32_000 < between_tiers("stt", 1.0, 0.0) < 36_000, "16 kHz, 16 bits"
    assert between_tiers("turn", 20.0, 0.0) > 8 * 64_000, "32 bits, at most 8 s"
    assert 96_000 < between_tiers("tts", 0.0, 2.0) < 103_000


def test_the_simulation_agrees_with_the_formulas(service: Service, fleet: Fleet, phases: list[Phase]) -> None:
    for phase in phases[:2]:
        stats = phase.summary()
        formula = with_calls(service, fleet, phase.calls)
        assert stats.count > 2_500
        measured = [value / 1000.0 for value in (stats.p50, stats.p95, stats.p99) if value]
        assert measured == pytest.approx(formula, rel=WITHIN)
        for one in fleet.groups:
            expected = one.busy * phase.calls / CALLS
            if one.stage.role != "stt":  # partial transcripts are left out while one waits
                assert phase.busy[one.stage.role] == pytest.approx(expected, rel=WITHIN)


def test_failures_lose_only_the_turns_of_their_call_server(phases: list[Phase]) -> None:
    calm, _, failures, restart = phases
    assert (calm.lost, calm.retried, calm.moved) == (0, 0, 0)
    assert failures.lost >= 1 and failures.retried >= 1 and failures.moved >= CALLS / 3 * 0.5
    assert restart.lost == restart.retried == 0 and restart.moved >= CALLS
    for phase in (failures, restart):
        expected = CALLS / 8.0 * 60.0 if phase is failures else 0
        assert len(phase.latencies_ms) + phase.lost >= 0.9 * expected, "all other turns are answered"


def test_the_same_seed_is_the_same_simulation(service: Service, fleet: Fleet) -> None:
    few = Disturbances(phase_s=5.0)
    one, same, other = (
        Simulation(service, fleet, seed, few).run(chaos=False)[0].latencies_ms for seed in (1, 1, 2)
    )
    assert one == same != other


def test_prices_are_read() -> None:
    assert prices_of("calls=0.1, gb=2") == {"calls": 0.1, "gb": 2.0} and prices_of("") == {}
    for wrong in ("calls", "rent=3", "gb=-1", "gb=inf", "gb=x"):
        with pytest.raises(ValueError):
            prices_of(wrong)


def test_the_command_plans_two_tiers(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra bench")
    load, overhead = tmp_path / "load.json", tmp_path / "overhead.json"
    load.write_text(json.dumps(LOAD))
    overhead.write_text(json.dumps(OVERHEAD))
    base = ["plan", "--calls", "60", "--from", str(load), "--overhead", str(overhead)]
    prices = ["--prices", "calls=0.1,models=0.6,gb=0.05", "--serial", "0.1ms", "--hop", "1ms"]
    out = ["--plot", str(tmp_path / "plan.png"), "--json", str(tmp_path / "plan.json")]
    done = CliRunner().invoke(cli.app, [*base, *prices, *out, "--simulate"])
    assert done.exit_code == 0, done.output
    for part in ("recogniser", "model servers", "traffic to callers", "Amdahl", "restart", "Head-room"):
        assert part in done.stdout
    plan = json.loads((tmp_path / "plan.json").read_text())
    assert plan["p95_s"] <= 0.8 and plan["models"]["stt"]["routing"] == "sticky"
    assert plan["money"]["total"] == pytest.approx(sum(plan["money"]["hourly"].values()))
    assert [phase["name"] for phase in plan["simulated"]] == ["calm", "burst", "failures", "restart"]
    assert (tmp_path / "plan.png").read_bytes().startswith(b"\x89PNG")
    for wrong, word in (
        (["--wire", "pigeon"], "audiosocket"),
        (["--prices", "rent=3"], "write prices as"),
        (["--hop", "soon"], "800ms"),
    ):
        refused = CliRunner().invoke(cli.app, [*base, *wrong])
        assert refused.exit_code == 2 and word in refused.stderr
    for given in (
        ["--simulate"], ["--seed", "1"], ["--headroom", "0.5"], ["--spare", "0"], ["--call-cores", "8"],
        ["--model-cores", "8"], ["--llm-slots", "4"], ["--hop", "1ms"], ["--serial", "1ms"],
        ["--wire", "pcm"], ["--prices", "gb=1"], ["--plot", "x.png"], ["--json", "x.json"],
    ):  # fmt: skip
        one_tier = CliRunner().invoke(cli.app, [*base[:5], *given])
        assert one_tier.exit_code == 2 and given[0] in one_tier.stderr and "overhead" in one_tier.stderr
    never = CliRunner().invoke(cli.app, [*base, "--p95", "50ms"])
    assert never.exit_code == 1 and "with idle models" in never.stderr
