"""Calls in which nobody speaks: when their frames are read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejoinder.agent.call import CLOCK_SECONDS, STILL_SECONDS, TOGETHER_SECONDS, until_next


@given(st.floats(0.0, 1e5), st.floats(0.0, 1e3))
def test_a_call_that_was_late_is_read_at_its_own_time_again(began: float, late: float) -> None:
    now = began + late
    wait = until_next(now, began)
    assert CLOCK_SECONDS < wait <= STILL_SECONDS + TOGETHER_SECONDS + CLOCK_SECONDS
    behind = (now + wait - began) % STILL_SECONDS
    assert min(behind, STILL_SECONDS - behind) <= TOGETHER_SECONDS + 1e-6
    grid = (now + wait) / TOGETHER_SECONDS
    assert abs(grid - round(grid)) < 1e-4


def test_calls_that_were_read_together_come_apart() -> None:
    now = 10.0  # all of them are late, and done at the same moment
    assert len({round(until_next(now, began), 6) for began in (0.000, 0.017, 0.056, 0.101)}) == 4
    assert until_next(now, 0.0561) == until_next(now, 0.0599), "those that are close stay together"


@pytest.mark.parametrize("place", range(1, 40))
def test_who_is_at_his_place_waits_for_the_next(place: int) -> None:
    assert until_next(10.0 + place * STILL_SECONDS, 10.0) > STILL_SECONDS / 2
