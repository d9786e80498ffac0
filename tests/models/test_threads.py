"""The thread plan: every engine gets at least one thread, and the plan does not overload the cores."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import numpy as np
import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from rejoinder.models.threads import (
    BLAS_ENVIRONMENT,
    QUIET_ENVIRONMENT,
    Threads,
    cores,
    limited_cores,
    plan,
    quiet,
)


@pytest.mark.parametrize(
    "available, threads",
    [
        (1, Threads(1, 1, 1)),
        (2, Threads(1, 1, 2)),
        (3, Threads(1, 1, 3)),
        (4, Threads(2, 2, 4)),
        (8, Threads(4, 4, 4)),
        (64, Threads(32, 32, 4)),
    ],
)
def test_the_plan_follows_the_cores(available: int, threads: Threads) -> None:
    assert plan(available) == threads
    assert plan(available, cuda=True) == Threads(1, 1, threads.tts), "the voice stays on the CPU"
    assert threads.small == 1


def test_the_plan_is_for_the_cores_of_this_process() -> None:
    assert cores() >= 1
    assert plan() == plan(cores())


@pytest.mark.parametrize(
    ("limit", "found"),
    [
        ("200000 100000\n", 2),
        ("250000 100000\n", 2),
        ("50000 100000\n", 1),
        ("max 100000\n", sys.maxsize),
        ("", sys.maxsize),
    ],
)
def test_limit_of_a_container_counts(limit: str, found: int, tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text(limit)
    assert limited_cores(tmp_path / "cpu.max") == found
    assert limited_cores(tmp_path / "none") == sys.maxsize


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="no processor affinity on this system")
def test_only_cores_that_may_be_used_count() -> None:
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)


def test_quiet_sets_only_unset_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    monkeypatch.delenv("KMP_BLOCKTIME", raising=False)
    try:
        quiet()
        assert os.environ["OMP_WAIT_POLICY"] == "active"
        assert os.environ["KMP_BLOCKTIME"] == QUIET_ENVIRONMENT["KMP_BLOCKTIME"]
    finally:
        monkeypatch.setenv("KMP_BLOCKTIME", "0")  # so that monkeypatch removes the variable afterwards


@pytest.mark.parametrize(("set_to", "threads"), [(None, 1), ("2", 2)])
def test_blas_gets_one_thread_unless_configured(
    monkeypatch: pytest.MonkeyPatch, set_to: str | None, threads: int
) -> None:
    for name in BLAS_ENVIRONMENT:
        monkeypatch.delenv(name, raising=False)
    if set_to:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", set_to)
    np.ones((2, 2)) @ np.ones((2, 2))
    with threadpool_limits(2, user_api="blas"):
        if not [pool for pool in threadpool_info() if pool["user_api"] == "blas"]:
            pytest.skip("this numpy has a BLAS without threads, Apple's perhaps")
        quiet()
        assert {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"} == {threads}
