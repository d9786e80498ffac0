"""How far a reply has been heard, and which words that makes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejoinder.pipeline.playout import LEAD_SECONDS, Playout


def spoken(*clauses: tuple[str, float], at: float = 0.0) -> Playout:
    playout = Playout()
    for text, seconds in clauses:
        playout.begin(text)
        playout.sent(seconds, at)
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
    for _ in range(10):
        playout.sent(0.1, 0.0, made=3.0)
    assert playout.text(1.0) == "One"  # a third of the clause, though all of the audio that was sent
    assert playout.text(99.0) == "One"
    for _ in range(20):
        playout.sent(0.1, 0.0, made=3.0)
    assert playout.text(playout.seconds) == "One two three four"


def test_a_clause_is_whole_although_its_slices_do_not_quite_add_up() -> None:
    playout = Playout()
    playout.begin("One two.")
    for _ in range(10):
        playout.sent(0.1, 0.0, made=1.0)
    assert playout.seconds < 1.0
    assert playout.text(playout.seconds) == "One two."


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
