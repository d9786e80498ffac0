"""The latency budget adds up, whatever ran in parallel."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from rejoinder.pipeline.trace import FIRST_MARK, LAST_MARK, PART_NAMES, Trace

NAMES = [FIRST_MARK, *PART_NAMES, "something_else"]


def trace(**marks: float) -> Trace:
    trace = Trace(1)
    for name, at in marks.items():
        trace.mark(name, at)
    return trace


def test_each_part_is_named_after_the_mark_that_ends_it() -> None:
    marks = {
        "speech_ended": 1.0,
        "reply_started": 1.25,
        "first_audio": 1.5,
        "committed": 2.0,
        "audio_sent": 2.0,
    }
    assert trace(**marks).budget() == [
        ("start the reply", 250.0),
        ("TTS first audio", 250.0),
        ("wait for the end of the turn", 500.0),
        ("send", 0.0),
    ]


def test_what_was_heard_of_an_earlier_reply_is_no_silence() -> None:
    waited = trace(speech_ended=1.0, floor_free=5.0, reply_started=5.0, audio_sent=5.25)
    assert (waited.latency, waited.silence) == (4.25, 0.25)
    assert waited.making() == 0.25
    assert trace(speech_ended=1.0, audio_sent=1.5).silence == 0.5
    assert trace(floor_free=5.0).silence == 0.0


def test_the_first_of_a_name_wins() -> None:
    marked = trace(speech_ended=1.0)
    marked.mark("speech_ended", 9.0)
    assert marked.marks == {"speech_ended": 1.0}


def test_no_budget_before_audio_was_sent_or_without_speech() -> None:
    assert trace(speech_ended=1.0, committed=2.0).budget() == []
    assert trace(reply_started=1.0, audio_sent=2.0).budget() == []


@given(st.dictionaries(st.sampled_from(NAMES), st.integers(0, 8_000)))
def test_the_parts_add_up_exactly(eighths: dict[str, int]) -> None:
    marks = {name: at / 8 for name, at in eighths.items()}  # sums of eighths have no rounding
    budget = trace(**marks).budget()
    assert all(part >= 0.0 for _, part in budget)
    if {FIRST_MARK, LAST_MARK} <= marks.keys() and marks[FIRST_MARK] <= marks[LAST_MARK]:
        assert sum(part for _, part in budget) == (marks[LAST_MARK] - marks[FIRST_MARK]) * 1000.0
    else:
        assert budget == []


def test_one_json_line() -> None:
    line = trace(speech_ended=3.0, first_token=3.1, audio_sent=3.5).to_json()
    assert "\n" not in line
    assert json.loads(line) == {
        "turn": 1,
        "marks": {"speech_ended": 0.0, "first_token": 100.0, "audio_sent": 500.0},
        "budget": [{"name": "LLM first token", "ms": 100.0}, {"name": "send", "ms": 400.0}],
        "counts": {},
    }
    assert json.loads(Trace(2).to_json())["marks"] == {}
