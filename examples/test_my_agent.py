"""Test your own agent against simulated callers that pause, interrupt and agree.

    .venv/bin/python -m pytest examples/test_my_agent.py        (make test installs pytest)

The test loads no models. Time is virtual, so it does not wait, and each run gives the same result to the
millisecond.
"""

from collections.abc import AsyncGenerator, Sequence

from rejoinder import Message
from rejoinder.simulate import Caller


class TableAgent:
    """Replace this with your agent: an object that streams an answer to a list of messages."""

    async def reply(self, messages: Sequence[Message]) -> AsyncGenerator[str, None]:
        asked = messages[-1]["content"]
        people = "two, at what time?" if "two" in asked else "how many people, please?"
        for word in f"A table for {people}".split():
            yield word + " "

    async def warm(self, messages: Sequence[Message]) -> None:
        pass


def test_a_pause_in_the_middle_is_not_the_end() -> None:
    call = Caller(TableAgent()).says("I would like a table").pauses(0.8).says("for two").hears_out().call()
    assert call.turns == ["I would like a table for two"]
    assert call.heard == ["A table for two, at what time?"]
    assert call.floor == ["nobody", "user", "user?", "user", "user?", "agent", "nobody"]
    assert call.latency_ms == [500]


def test_the_agent_waits_for_a_hesitating_caller() -> None:
    call = Caller(TableAgent()).says("a table for").hesitates(0.7).says("two").hears_out().call()
    assert call.history[0] == ("user", "a table for um two")


def test_mm_hm_does_not_stop_the_agent() -> None:
    call = Caller(TableAgent()).says("a table").hears(0.9).backchannels("mm-hm").hears_out().call()
    assert call.floor[-4:] == ["agent", "agent?", "agent", "nobody"]
    assert call.heard == ["A table for how many people, please?"]
    assert "mm-hm" not in str(call.history)


def test_an_interruption_stops_it_and_it_knows_what_was_heard() -> None:
    call = Caller(TableAgent()).says("a table").interrupts("for two, please", after=0.9).hears_out().call()
    assert call.history == [
        ("user", "a table"),
        ("assistant", "A table for how many—"),
        ("user", "for two, please"),
        ("assistant", "A table for two, at what time?"),
    ]
    assert call.heard == ["A table for how many", "A table for two, at what time?"]
    assert max(call.latency_ms) <= 1000
