"""What is true of every simulated call, wherever it is broken off; and calls broken off everywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count

from rejoinder.agent.client.player import RATE
from rejoinder.agent.simulate import virtual_clock
from rejoinder.agent.simulate.callers import Call, Caller
from rejoinder.models.scripted import SECONDS_PER_CHARACTER
from rejoinder.pipeline.replying.replies import MERGE_SECONDS

CLOSE = RATE // 500
"""Samples by which the agent's clock and the caller's may differ, 2 ms: a word may end in between."""
LONGEST_WORD = 12


def check(call: Call) -> None:
    """Raise AssertionError unless nothing is left open, and what is remembered is what was said and heard."""
    talk = call.talk
    assert (talk.llm.open, talk.tts.open) == (0, 0), "requests are left open"
    if not talk.opened:
        return
    for entry in talk.session.history.entries:
        if entry.turn:
            _check_heard(call, entry.turn, entry.text)
    said = call.said
    remembered = [entry.text for entry in talk.session.history.entries if entry.role == "user"]
    assert _in_order(remembered, said), f"{remembered} is remembered of {said}"
    assert set(call.turns) <= set(remembered), f"{remembered} is remembered of the turns {call.turns}"
    for prompt in call.prompts:
        asked = [message["content"] for message in prompt if message["role"] == "user"]
        asked = [content.removesuffix(talk.options.idle_cue) for content in asked]
        assert _in_order(asked, said), f"{asked} is asked of {said}"


def _check_heard(call: Call, turn: int, remembered: str) -> None:
    talk = call.talk
    heard = {talk.ear.text(turn, call.ended, more) for more in (-CLOSE, CLOSE)}
    if remembered in heard or (not remembered and talk.ear.seconds_of(turn, call.ended) < MERGE_SECONDS):
        return
    # Over a line that is late the caller's own account may still be on its way.
    least = min(heard, key=len)
    slack = 3 * talk.line.latest / SECONDS_PER_CHARACTER + LONGEST_WORD if talk.line.latest else 0
    near = remembered.startswith(least) and len(remembered) - len(least) <= slack
    assert near, f"{remembered!r} is remembered of reply {turn}, of which {least!r} was heard"


def _in_order(texts: Sequence[str], said: Sequence[str]) -> bool:
    """Tell whether the words come in this order among those that were said, none of them twice."""
    rest = iter(said)
    return all(any(word == one for one in rest) for text in texts for word in text.split())


def hang_ups(caller: Callable[[], Caller], every: int = 1, first: int = 1) -> Iterator[int]:
    """Break a call off in each step of its loop, and check what is left; yield the steps.

    Raises AssertionError, of which ``Leak`` is one. every: take one step of so many, from ``first`` on.
    """
    for step in count(first, every):
        call = caller().prepared()
        with _told(step):
            if not virtual_clock.run(virtual_clock.cancelled_at(step, call.hold()), debug=False):
                return
            check(call)
        yield step


def interruptions(caller: Callable[[], Caller], every: int = 1, first: int = 1) -> Iterator[int]:
    """Stop the agent in each step of a call, stay on the line, and check what is left; yield the steps."""
    for step in range(first, caller().call().steps, every):
        call = caller().prepared()
        with _told(step):
            virtual_clock.run(call.hold(interrupted_at=step), debug=False)
            call.talk.check()
            check(call)
        yield step


@contextmanager
def _told(step: int) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note(f"in step {step}")
        raise
