"""Which work comes first: a rule without threads, and what a conversation makes of it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncGenerator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejoinder.agent.simulate.scenario import Talk
from rejoinder.models.scripted import ScriptedLlm, ScriptedTts
from rejoinder.pipeline.audio.chunk import AudioChunk
from rejoinder.pipeline.engines import deadline as deadline
from rejoinder.pipeline.engines.deadline import GUESS_SECONDS, PARTIAL_SECONDS, SPARE_SECONDS, Deadline, first
from rejoinder.pipeline.replying.reply import Reply

NOW = 100.0
FINAL, ANSWER, LATE = Deadline(due=NOW), Deadline(due=NOW - 0.1), Deadline(due=NOW - 0.5)
SOUNDS, RUNS_DRY = Deadline(due=NOW + 3.0), Deadline(due=NOW + 0.1)
GUESS, PARTIAL, TEXT = Deadline(GUESS_SECONDS), Deadline(PARTIAL_SECONDS), Deadline(SPARE_SECONDS)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (FINAL, PARTIAL),
        (FINAL, GUESS),
        (GUESS, PARTIAL),
        (PARTIAL, TEXT),
        (LATE, ANSWER),
        (ANSWER, RUNS_DRY),
        (RUNS_DRY, GUESS),
        (GUESS, SOUNDS),
        (RUNS_DRY, SOUNDS),
        (SOUNDS, TEXT),
    ],
)
def test_what_is_needed_sooner_goes_first(before: Deadline, after: Deadline) -> None:
    for pair in ([before, after], [after, before]):
        (place,) = first([(each.left(NOW), None) for each in pair], 1)
        assert pair[place] is before


def test_a_guess_that_becomes_the_answer_goes_before_guesses_that_came_earlier() -> None:
    guesses = [Deadline(), Deadline(), Deadline()]
    guesses[2].due = NOW
    assert first([(each.left(NOW), None) for each in guesses], 3) == [2, 0, 1]


def test_only_what_is_alike_runs_together() -> None:
    waiting = [(0.5, "10 s"), (0.1, "15 s"), (0.3, "10 s"), (0.2, "15 s"), (0.4, "15 s")]
    assert first(waiting, 4) == [1, 3, 4]
    assert first(waiting, 2) == [1, 3]
    assert first([], 4) == []


lefts = st.one_of(st.floats(-5, 5), st.just(math.inf))


@given(st.lists(st.tuples(lefts, st.sampled_from("ab")), min_size=1, max_size=30), st.integers(1, 5))
def test_nothing_more_urgent_of_its_kind_is_left_behind(waiting: list[tuple[float, str]], most: int) -> None:
    taken = first(waiting, most)
    kind = waiting[taken[0]][1]
    assert min(left for left, _ in waiting) == waiting[taken[0]][0]
    assert {waiting[place][1] for place in taken} == {kind} and len(set(taken)) == len(taken) <= most
    passed = [place for place, one in enumerate(waiting) if one[1] == kind and place not in taken]
    last = (waiting[taken[-1]][0], taken[-1])
    assert all((waiting[place][0], place) > last for place in passed)
    assert len(taken) == most or not passed


class DeadlineLog:
    """Records the deadlines of the language model's request and of each clause of the voice."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, float, float | None]] = []

    def note(self, what: str, now: float) -> None:
        known = deadline.current.get()
        assert known is not None, f"{what} has no deadline"
        self.seen.append((what, round(known.left(now), 2), known.due))


def test_a_reply_is_a_guess_then_the_answer_and_then_due_when_it_runs_dry() -> None:
    """The voice's own task knows the reply's deadline, which moves with the reply."""
    log = DeadlineLog()

    class Voice(ScriptedTts):
        async def speak(self, text: str) -> AsyncGenerator[AudioChunk, None]:
            log.note(text, asyncio.get_running_loop().time())
            async for chunk in super().speak(text):
                yield chunk

    line = "One two three four. Five six seven eight nine ten eleven. Twelve thirteen fourteen."
    talk = Talk("hello there", llm=ScriptedLlm([line]), tts=Voice())
    talk.says(1.0, at=0.5)
    talk.run(until=12.0)
    clauses = [left for _, left, _ in log.seen]
    assert log.seen[0][2] is None and clauses[0] == GUESS_SECONDS, "the first clause is not certainly needed"
    assert log.seen[-1][2] is not None and clauses[-1] > GUESS_SECONDS, "the last one has time"


def test_a_reply_that_is_paused_is_in_doubt_again() -> None:
    async def main() -> None:
        reply = Reply(1, "hello")
        assert reply.output.deadline.due is None
        reply.output.add_synthesised(2.0)
        assert reply.output.deadline.due is None, "what is not committed is not awaited"
        reply.commit()
        now = asyncio.get_running_loop().time()
        assert reply.output.deadline.left(now) == pytest.approx(2.0, abs=0.1), "what was made is heard first"
        reply.output.pause()
        reply.output.add_synthesised(1.0)
        assert reply.output.deadline.due is None
        reply.output.resume()
        assert reply.output.deadline.left(now) == pytest.approx(3.0, abs=0.1)

    asyncio.run(main())
