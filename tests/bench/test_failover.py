"""The bench of failover: a server with one model and one with two, which fail for real."""

from __future__ import annotations

import asyncio

import pytest

from rejoinder.agent.bench.failover import DEADLINE_SECONDS, EACH_FAULT, measure, median_difference, table

pytestmark = pytest.mark.server


def test_both_servers_answer_with_and_without_faults() -> None:
    waits = asyncio.run(measure(2, faults=("refused", "dribbling", "empty"), uncounted=4))
    assert len(waits.idle) == 2 and median_difference(waits) == pytest.approx(0.0, abs=1e4)
    assert {name: len(found) for name, found in waits.faults.items()} == dict.fromkeys(
        ("refused", "dribbling", "empty"), EACH_FAULT
    )
    for pair in waits.faults["dribbling"]:
        assert min(pair) > 1000 * DEADLINE_SECONDS, "the next one is not asked before"
    assert table(waits).row_count == 5
