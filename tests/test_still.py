"""Calls in which nobody speaks: when their frames are read."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejoinder.agent.call import STILL_SECONDS, until_next


@given(st.floats(0.0, 1e5))
def test_a_call_that_was_late_is_read_at_its_own_time_again(late: float) -> None:
    wait = until_next(late)
    assert 0.0 < wait <= STILL_SECONDS
    places = (late + wait) / STILL_SECONDS
    assert places == pytest.approx(round(places), abs=1e-6)


def test_calls_that_were_read_together_come_apart() -> None:
    began = [0.000, 0.017, 0.058, 0.101]
    now = 10.0  # all of them are late, and done at the same moment
    assert len({round(until_next(now - each), 6) for each in began}) == len(began)
