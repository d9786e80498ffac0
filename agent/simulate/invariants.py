"""Invariants of every simulated call, and sweeps that break a call off in each step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count

from rejoinder.agent.client.audio import CLIENT_RATE
from rejoinder.agent.simulate import virtual_clock
from rejoinder.agent.simulate.call import Call
from rejoinder.agent.simulate.caller import Caller
from rejoinder.models.scripted import SECONDS_PER_CHARACTER
from rejoinder.pipeline.replying.reply_records import LEAST_HEARD_SECONDS

CLOCK_TOLERANCE = CLIENT_RATE // 500
"""Largest difference between the agent's and the caller's playback clock, in samples: 2 ms."""
LONGEST_WORD = 12
"""Characters of the longest word in the scripts."""


def check(call: Call) -> None:
    """Raise AssertionError if a request is left open, or if the history differs from the spoken words."""
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
    heard = {talk.ear.text(turn, call.ended, more) for more in (-CLOCK_TOLERANCE, CLOCK_TOLERANCE)}
    seconds = talk.ear.seconds_of(turn, call.ended)
    if remembered in heard or (not remembered and seconds < LEAST_HEARD_SECONDS):
        return
    # Over a slow line, the caller's report may still be on its way.
    least = min(heard, key=len)
    slack = 3 * talk.line.latest / SECONDS_PER_CHARACTER + LONGEST_WORD if talk.line.latest else 0
    near = remembered.startswith(least) and len(remembered) - len(least) <= slack
    assert near, f"{remembered!r} is remembered of reply {turn}, of which {least!r} was heard"


def _in_order(texts: Sequence[str], said: Sequence[str]) -> bool:
    """Return whether the words of ``texts`` are a subsequence of the said words."""
    rest = iter(said)
    return all(any(word == one for one in rest) for text in texts for word in text.split())


def hang_ups(caller: Callable[[], Caller], every: int = 1, first: int = 1) -> Iterator[int]:
    """Hang up in each step of a call's loop, check the invariants, and yield the steps.

    every: hang up only in every Nth step, from ``first`` on. Raises AssertionError; ``Leak`` is one.
    """
    for step in count(first, every):
        call = caller().prepared()
        with _naming(step):
            if not virtual_clock.run(virtual_clock.cancelled_at(step, call.hold())):
                return
            check(call)
        yield step


def interruptions(caller: Callable[[], Caller], every: int = 1, first: int = 1) -> Iterator[int]:
    """Stop the agent in each step of a call, stay on the line, check the invariants, and yield the steps.

    every: stop only in every Nth step, from ``first`` on. Raises AssertionError.
    """
    for step in range(first, caller().call().steps, every):
        call = caller().prepared()
        with _naming(step):
            virtual_clock.run(call.hold(interrupted_at=step))
            call.talk.check()
            check(call)
        yield step


@contextmanager
def _naming(step: int) -> Iterator[None]:
    try:
        yield
    except BaseException as error:
        error.add_note(f"in step {step}")
        raise
