"""The pace of a client's messages: too many, or none for too long, end its call and no other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.serving import Talk, serving

from rejoinder.agent.server.limiting.pace import BURST_SECONDS, Pace
from rejoinder.pipeline import Overloaded
from rejoinder.pipeline.errors import HungUp


def test_a_burst_is_allowed_and_a_flood_is_not() -> None:
    pace, came = Pace(100, 0.0, 0.0), int(100 * BURST_SECONDS)
    pace.look(1.0, came)
    for second in range(2, 60):
        came += 100
        pace.look(float(second), came)
    with pytest.raises(Overloaded, match="more than 100 messages a second"):
        pace.look(60.0, came + 101)


def test_a_rest_earns_no_more_than_a_burst() -> None:
    pace, burst = Pace(100, 0.0, 0.0), int(100 * BURST_SECONDS)
    pace.look(1000.0, burst)
    with pytest.raises(Overloaded):
        pace.look(1001.0, burst + 101)


def test_silence_counts_from_the_last_message() -> None:
    pace = Pace(0, 5.0, 0.0)
    pace.look(4.0, 1)
    pace.look(8.9, 1)
    with pytest.raises(HungUp, match="the client has sent nothing for 5 s"):
        pace.look(9.0, 1)


def test_there_are_no_limits_by_zero() -> None:
    pace = Pace(0, 0.0, 0.0)
    pace.look(1.0, 10**9)
    pace.look(10.0**9, 10**9)


@pytest.mark.server
def test_a_flood_of_messages_ends_its_call_and_no_other(tmp_path: Path) -> None:
    clear = json.dumps({"type": "input_audio_buffer.clear"})
    with serving(tmp_path, max_messages_per_s="100") as server, Talk(server) as other:
        with Talk(server) as talk:
            for _ in range(2 * int(100 * BURST_SECONDS)):
                talk.socket.send(clear)
            assert talk.read_to_end() == (1008, "the client sends more than 100 messages a second")
        assert other.turn()["status"] == "completed"


@pytest.mark.server
def test_a_client_that_sends_nothing_is_hung_up_on(tmp_path: Path) -> None:
    with serving(tmp_path, max_silent_s="1.5") as server, Talk(server) as talk:
        assert talk.read_to_end() == (1000, "the client has sent nothing for 1.5 s")
