"""When a message for an answering machine begins."""

from __future__ import annotations

from rejoinder.agent.app.answering.beep import Beep
from rejoinder.agent.app.answering.message_start import AFTER_BEEP_S, NO_BEEP_S, MessageStart
from rejoinder.pipeline import RATE


def at(seconds: float) -> int:
    return int(seconds * RATE)


def first_due(start: MessageStart, begin: float, end: float) -> float | None:
    """Return the first of the steps of 20 ms at which a message begins."""
    steps = range(int(begin * 50), int(end * 50) + 1)
    return next((step / 50 for step in steps if start.due(at(step / 50))), None)


def test_message_begins_after_the_beep() -> None:
    start = MessageStart(at(3.0))
    assert first_due(start, 3.0, 5.0) is None
    start.pause(at(5.0))
    start.beep(Beep(at(6.0), at(6.5), 1000))
    due = first_due(start, 6.5, 9.0)
    assert due is not None and 6.5 + AFTER_BEEP_S <= due < 6.5 + AFTER_BEEP_S + 0.04
    assert start.by_beep and first_due(start, due, 20.0) is None, "it begins once"


def test_message_begins_in_the_silence_of_a_machine_without_beep() -> None:
    start = MessageStart(at(3.0))
    start.pause(at(5.0))
    due = first_due(start, 5.0, 12.0)
    assert due is not None and 5.0 + NO_BEEP_S <= due < 5.0 + NO_BEEP_S + 0.04 and not start.by_beep


def test_greeting_that_goes_on_is_waited_for() -> None:
    start = MessageStart(at(3.0))
    start.pause(at(5.0))
    assert first_due(start, 5.0, 8.0) is None
    start.speech()
    assert first_due(start, 8.0, 30.0) is None


def test_message_begins_again_after_a_late_beep() -> None:
    start = MessageStart(at(3.0), None, at(2.0))
    assert first_due(start, 3.0, 8.0) == 5.5
    start.beep(Beep(at(6.0), at(6.3), 1000))
    assert first_due(start, 6.3, 8.0) is not None and start.by_beep


def test_beep_just_before_the_request_counts() -> None:
    beep = Beep(at(2.0), at(2.5), 1000)
    assert MessageStart(at(3.0), beep, at(1.9)).due(at(3.0))
    assert not MessageStart(at(3.0), beep, None).due(at(3.0)), "speech followed it"
    assert not MessageStart(at(30.0), beep, at(29.0)).due(at(30.0)), "it is too old"
