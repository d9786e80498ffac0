"""A full disk, a locked file, and a wall clock that jumps, under a running server."""

from __future__ import annotations

import asyncio
import json
import resource
import sqlite3
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.servers.faults import metric, until
from support.servers.in_process import until as reached
from support.serving import Server, Talk, serving
from websockets.exceptions import InvalidStatus

from rejoinder.agent.bench.faults.subject import FAKED, FAKETIME
from rejoinder.agent.faults import CLOCK_FAULT, FAULTS
from rejoinder.agent.server.keys import hashed, new_key
from rejoinder.agent.server.operating import clock

pytestmark = pytest.mark.server

HOUR = 3600.0


@contextmanager
def disk_full(server: Server, size: int) -> Iterator[None]:
    """Let no file of the server grow beyond ``size`` bytes."""
    before = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, before)


def failed(server: Server) -> float:
    """Return the failures of the cache of answers."""
    return metric(server, "cached_answers_total", found="failed")


def lines(file: Path) -> list[dict[str, Any]]:
    """Return the lines of a traces file, each of which has to be whole."""
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_full_disk_costs_lines_and_no_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    traces, answers = tmp_path / "traces.jsonl", tmp_path / "answers.db"
    traces.write_text(f"{json.dumps({'old': 'x' * 200})}\n" * 1000)  # larger than the log
    monkeypatch.setenv("REJOINDER_TRACE_FILE", str(traces))
    monkeypatch.setenv("REJOINDER_ANSWER_CACHE", f"sqlite:{answers}")
    with serving(tmp_path, llm="scripted:llm|Yes.") as server, Talk(server) as call:
        assert call.turn()["status"] == "completed"
        until(lambda: len(lines(traces)) == 1001, "no trace was written")
        with disk_full(server, traces.stat().st_size + 100):
            for _ in range(3):
                assert call.turn()["status"] == "completed"
            until(lambda: metric(server, "faults_total", kind="trace_file") >= 3, "nothing was counted")
        said = server.log.read_text()
        assert said.count("cannot write the traces file") == 1, "one line for the whole shortage"
        assert metric(server, "faults_total", kind="log") == 0

        with disk_full(server, server.log.stat().st_size), Talk(server) as other:  # the log is full, too
            assert other.turn()["status"] == "completed"
            until(lambda: failed(server), "the cache failed in silence")
        until(lambda: metric(server, "faults_total", kind="log") >= 1, "the lost lines were not counted")
        assert call.turn()["status"] == "completed"
        until(lambda: "is written again" in server.log.read_text(), "the end of the shortage is not logged")
        assert "of this log could not be written when they were due" in server.log.read_text()
        assert call.turn()["status"] == "completed"
        until(lambda: len(lines(traces)) >= 1003, "the traces do not go on")
    found = lines(traces)
    assert all("old" in line or line["status"] == "completed" for line in found)


def test_locked_cache_costs_the_answers_that_it_would_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = tmp_path / "answers.db"
    monkeypatch.setenv("REJOINDER_ANSWER_CACHE", f"sqlite:{answers}")
    with serving(tmp_path, llm="scripted:llm|Yes.") as server:
        with closing(sqlite3.connect(answers, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            with Talk(server) as call:
                assert call.turn()["status"] == "completed"
                until(lambda: failed(server), "nothing was counted")
                assert call.turn()["status"] == "completed"
            assert "an answer was not stored: " in server.log.read_text()
            other.execute("ROLLBACK")
        server.wait_idle()

        def stored() -> int:
            with closing(sqlite3.connect(answers)) as database:
                return int(database.execute("SELECT count(*) FROM answers").fetchone()[0])

        with Talk(server) as call:
            assert call.turn()["status"] == "completed"
            until(stored, "no answer was stored after the lock")


def test_cache_that_is_locked_at_the_start_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A server that starts while another one writes, or purges, gets its turn."""
    answers = tmp_path / "answers.db"
    monkeypatch.setenv("REJOINDER_ANSWER_CACHE", f"sqlite:{answers}")
    with serving(tmp_path, llm="scripted:llm|Yes.") as server, Talk(server) as call:
        assert call.turn()["status"] == "completed"
    with closing(sqlite3.connect(answers, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with serving(tmp_path, llm="scripted:llm|Yes.") as server, Talk(server) as call:
            assert call.turn()["status"] == "completed"


def test_jump_of_the_wall_clock_changes_nothing_but_timestamps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not FAKETIME:
        pytest.skip("libfaketime is not installed: apt-get install libfaketime")
    shift, traces, key = tmp_path / "shift", tmp_path / "traces.jsonl", new_key()
    shift.write_text("+0")
    for name, value in {
        **FAKED,
        "FAKETIME_NO_CACHE": "1",
        "LD_PRELOAD": str(FAKETIME[0]),
        "FAKETIME_TIMESTAMP_FILE": str(shift),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("REJOINDER_TRACE_FILE", str(traces))
    monkeypatch.setenv("REJOINDER_KEY_CALLS_PER_MIN", "5")
    with serving(tmp_path, api_keys=hashed(key)) as server:
        headers = {"Authorization": f"Bearer {key}"}
        asked = urllib.request.Request(f"{server.http}/v1/realtime/client_secrets", b"{}", headers)
        with urllib.request.urlopen(asked) as answer:
            secret = json.load(answer)["value"]
        with Talk(server, additional_headers=headers) as call:
            for hours in ("+0", "+6h", "-12h"):
                shift.write_text(hours)
                assert call.turn()["status"] == "completed"
                with Talk(server, additional_headers={"Authorization": f"Bearer {secret}"}) as other:
                    assert other.turn()["status"] == "completed", "the secret is valid for ten minutes"
            with pytest.raises(InvalidStatus) as refused:  # of the minute, not of the hours that passed
                for _ in range(3):
                    with Talk(server, additional_headers=headers):
                        pass
            assert refused.value.response.status_code == 429
        until(lambda: server.log.read_text().count("the wall clock jumped by ") == 2, "nothing was logged")
        server.wait_idle()
    days = {line["at"][:13] for line in lines(traces)}
    assert len(days) >= 3, "the timestamps follow the wall clock"


def test_jumps_of_the_wall_clock_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    real, ahead = time.time, 0.0
    monkeypatch.setattr(clock, "CLOCK_CHECK_SECONDS", 0.01)
    monkeypatch.setattr(time, "time", lambda: real() + ahead)
    before = FAULTS[CLOCK_FAULT]

    async def jump() -> None:
        nonlocal ahead
        task = asyncio.create_task(clock.watch_clock())
        await asyncio.sleep(0.1)
        assert FAULTS[CLOCK_FAULT] == before, "a clock that goes on does not jump"
        for hours in (1, 0):
            count, ahead = FAULTS[CLOCK_FAULT], hours * HOUR
            await reached(lambda count=count: FAULTS[CLOCK_FAULT] > count)  # type: ignore[misc]
        task.cancel()

    asyncio.run(jump())
    assert FAULTS[CLOCK_FAULT] == before + 2
