"""Amounts of a day: how they are reported, and how many names there may be."""

from __future__ import annotations

import pytest

from rejoinder.pipeline import day_tally
from rejoinder.pipeline.day_tally import MOST_REPORTED, DayTally


def tally_of(names: int) -> DayTally:
    tally = DayTally()
    for number in range(names):
        tally.add(f"tokens of address {number}", 1.0, strange=True)
    return tally


def test_each_report_has_a_bounded_number_of_names_and_all_come_in_turn() -> None:
    count = 5 * MOST_REPORTED
    tally = tally_of(count)
    first = [tally.report() for _ in range(5)]
    assert {len(one) for one in first} == {MOST_REPORTED} and len(set[str]().union(*first)) == count
    assert tally.report() == {} and not tally.unreported
    again = [tally.report(everything=True) for _ in range(5)]
    assert {len(one) for one in again} == {MOST_REPORTED} and len(set[str]().union(*again)) == count


def test_names_that_have_changed_are_reported_first() -> None:
    tally = tally_of(3 * MOST_REPORTED)
    while tally.unreported:
        tally.report()
    newest = f"tokens of address {3 * MOST_REPORTED - 1}"
    tally.add(newest, 4.0)
    report = tally.report(everything=True)
    assert report[newest] == 5.0 and len(report) == MOST_REPORTED


def test_all_names_are_reported_anew_where_they_were_lost() -> None:
    tally = tally_of(3)
    lost = tally.report()
    tally.follow(lost)
    assert tally.report() == lost and tally.report() == {}
    tally.report_anew()
    assert tally.report() == lost


def test_strangers_beyond_the_most_have_no_limit_and_the_log_says_so_once_a_day(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(day_tally, "MOST_NAMES", 2)
    today = ["Monday"]
    tally = DayTally(lambda: today[0])
    for name in ("one", "two", "three", "four", "one"):
        tally.add(name, 1.0, strange=True)
    tally.add("a key", 1.0)
    assert [tally.total(name) for name in ("one", "two", "three", "four", "a key")] == [
        2.0,
        1.0,
        0.0,
        0.0,
        1.0,
    ]
    said = [record.getMessage() for record in caplog.records]
    assert said == ["2 names are counted today: new addresses have no limits per day"]
    today[0] = "Tuesday"
    for name in ("three", "four", "five"):
        tally.add(name, 1.0, strange=True)
    assert tally.total("three") == 1.0 and tally.total("five") == 0.0 and len(caplog.records) == 2
