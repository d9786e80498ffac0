"""Realtime clients whose events are lost, doubled, late or damaged, while the session goes on."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st
from support.scrambled.frames import Frame, scrambled
from support.scrambled.realtime import ACTS, SCRIPT, Line, check_items, check_responses

ACTS += ["doubt", "no doubt", "silence", "nothing"]


@settings(max_examples=300)
@given(scrambled([json.dumps(message) for message in SCRIPT]), st.lists(st.sampled_from(ACTS), max_size=60))
def test_events_in_any_order_end_in_answers_that_agree(frames: list[Frame], acts: list[str]) -> None:
    line = Line()
    for number in range(max(len(frames), len(acts))):
        if number < len(acts):
            line.happen(acts[number])
        if number < len(frames):
            line.say(frames[number])
    for turn in list(line.live):
        line.end(turn, "completed")
    told = [event["event_id"] for event in line.events]
    assert len(set(told)) == len(told)
    check_items(line)
    check_responses(line.events)
