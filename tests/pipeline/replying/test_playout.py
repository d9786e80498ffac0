"""How far a reply has been heard, and which words that makes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejoinder.pipeline.audio.chunk import Words
from rejoinder.pipeline.replying.playout import LEAD_SECONDS, Playout, spread


def spoken(*clauses: tuple[str, float], at: float = 0.0) -> Playout:
    return told(*((text, seconds, spread(text, seconds)) for text, seconds in clauses), at=at)


def told(*clauses: tuple[str, float, Words], at: float = 0.0) -> Playout:
    playout = Playout()
    for text, seconds, words in clauses:
        playout.begin(text)
        playout.sent(seconds, at, words)
    playout.end()
    return playout


@pytest.mark.parametrize(
    ("played", "heard"),
    [
        (0.0, ""),
        (0.3, ""),
        (0.5, "One"),  # 3 of 18 characters after a sixth of the three seconds
        (1.1, "One"),
        (1.2, "One two"),
        (2.9, "One two three"),
        (3.0, "One two three four"),
        (3.5, "One two three four"),
        (4.0, "One two three four five"),
        (9.0, "One two three four five six."),
    ],
)
def test_words_are_spread_over_the_audio(played: float, heard: str) -> None:
    assert spoken(("One two three four", 3.0), ("five six.", 1.8)).text(played) == heard


def test_audio_is_sent_a_little_ahead() -> None:
    playout = Playout()
    playout.begin("words")
    assert playout.sent(0.125, 10.0) == 0.0
    assert playout.sent(0.125, 10.0) == pytest.approx(0.25 - LEAD_SECONDS)
    assert playout.sent(1.0, 10.05) == pytest.approx(1.2 - LEAD_SECONDS)
    assert playout.played(10.5) == pytest.approx(0.5)
    assert playout.left(10.5) == pytest.approx(0.75)
    assert (playout.played(99.0), playout.left(99.0)) == (1.25, 0.0)


def test_running_dry_stops_the_clock() -> None:
    playout = Playout()
    playout.begin("words")
    playout.sent(0.5, 0.0)
    assert playout.played(2.0) == 0.5
    playout.sent(0.5, 2.0)
    assert playout.played(2.25) == 0.75
    assert playout.played(3.0) == 1.0


def test_a_clause_without_audio_was_not_heard() -> None:
    playout = spoken(("One", 1.0))
    playout.begin("two")
    assert playout.text(5.0) == "One"
    assert playout.text(0.5) == ""


def test_words_are_spread_over_what_is_made_and_not_over_what_was_sent() -> None:
    playout = Playout()
    playout.begin("One two three four")
    words = spread("One two three four", 3.0)
    for _ in range(10):
        playout.sent(0.1, 0.0, words)
    assert playout.text(1.0) == "One"  # a third of the clause, though all of the audio that was sent
    assert playout.text(99.0) == "One"
    for _ in range(20):
        playout.sent(0.1, 0.0, words)
    assert playout.text(playout.seconds) == "One two three four"


def test_a_clause_is_whole_although_its_slices_do_not_quite_add_up() -> None:
    playout = Playout()
    playout.begin("One two.")
    for _ in range(10):
        playout.sent(0.1, 0.0, spread("One two.", 1.0))
    assert playout.seconds < 1.0
    assert playout.text(playout.seconds) == "One two."


COSTS: Words = ((0.25, 2), (0.5, 8), (1.75, 15), (2.0, 19))
"""When the words of "It costs $12.50 now" are spoken."""


@pytest.mark.parametrize(
    ("played", "heard"),
    [
        (0.0, ""),
        (0.2, ""),
        (0.25, "It"),
        (0.3, "It"),
        (0.6, "It costs"),
        (1.7, "It costs"),  # in the middle of "twelve dollars fifty"
        (1.75, "It costs $12.50"),
        (2.1, "It costs $12.50 now"),  # in the pause behind the last word
        (2.2, "It costs $12.50 now"),
        (2.25, "It costs $12.50 now Yes,"),
        (2.3, "It costs $12.50 now Yes, it  does."),
        (9.0, "It costs $12.50 now Yes, it  does."),
    ],
)
def test_words_are_heard_when_the_voice_says_them(played: float, heard: str) -> None:
    words: Words = ((0.05, 4), (0.06, 7), (0.1, 13))
    playout = told(("It costs $12.50 now", 2.2, COSTS), ("Yes, it  does.", 0.1, words))
    assert playout.text(played) == heard


def test_words_become_known_while_the_clause_is_spoken() -> None:
    playout = Playout()
    playout.begin("Yes. It does.")
    playout.sent(0.5, 0.0, ((0.4, 4),))
    assert playout.text(0.5) == "Yes."
    playout.sent(0.5, 0.0, ((0.4, 4), (0.7, 7), (0.9, 13)))
    assert playout.text(0.8) == "Yes. It"


def test_a_word_that_would_end_after_its_audio_is_heard_with_it() -> None:
    playout = Playout()
    playout.begin("One two")
    playout.sent(1.0, 0.0, ((0.5, 3), (1.2, 7)))
    assert playout.text(1.0) == "One"  # more of it may come
    playout.begin("three")
    assert (playout.text(0.9), playout.text(1.0)) == ("One", "One two")
    playout.sent(0.5, 0.0, ((9.0, 5),))
    playout.end()
    assert (playout.text(1.4), playout.text(1.5)) == ("One two", "One two three")


def test_without_times_nothing_is_heard_before_the_clause_is_over() -> None:
    playout = Playout()
    playout.begin("One two")
    playout.sent(1.0, 0.0)
    assert playout.text(1.0) == ""
    playout.end()
    assert playout.text(1.0) == "One two"


@given(st.text("ab ,.\n", max_size=60), st.floats(0.01, 20.0))
def test_spread_words_are_in_order_and_end_with_the_audio(text: str, seconds: float) -> None:
    words = spread(text, seconds)
    assert [text[:characters].split()[-1] for _, characters in words] == text.split()
    assert list(words) == sorted(words)
    assert all(0 < time <= seconds for time, _ in words)


def test_nothing_was_sent() -> None:
    playout = Playout()
    assert (playout.played(3.0), playout.left(3.0), playout.text(3.0)) == (0.0, 0.0, "")


@given(
    st.lists(st.tuples(st.text("ab .", min_size=1, max_size=40), st.floats(0.01, 5.0)), max_size=6),
    st.floats(0.0, 20.0),
    st.floats(0.0, 20.0),
)
def test_what_was_heard_is_a_growing_beginning(
    clauses: list[tuple[str, float]], one: float, other: float
) -> None:
    playout = spoken(*clauses)
    words = [word for text, _ in clauses for word in text.split()]
    less, more = (playout.text(played).split() for played in sorted((one, other)))
    assert less == words[: len(less)]
    assert more == words[: len(more)]
    assert len(less) <= len(more)
    assert playout.text(playout.seconds).split() == words


def test_the_clock_stands_still_with_a_client_that_holds() -> None:
    playout = Playout(holds=True)
    playout.sent(1.0, now=10.0)
    playout.pause(10.25)
    playout.sent(0.5, now=10.5)  # was under way: the client puts it behind
    assert (playout.played(11.0), playout.left(11.0)) == (0.25, 1.25)
    playout.resume(20.0)
    assert (playout.played(20.0), playout.left(20.0)) == (0.25, 1.25)
    assert playout.played(20.5) == 0.75


def test_a_client_that_does_not_hold_plays_what_it_has() -> None:
    playout = Playout()
    playout.sent(1.0, now=10.0)
    playout.pause(10.25)
    assert playout.played(10.5) == 0.5
    playout.resume(20.0)
    assert (playout.played(20.0), playout.left(20.0)) == (1.0, 0.0)
