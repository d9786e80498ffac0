"""Text cut into clauses: nothing lost, bounds kept, and the pieces it came in make no difference."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rejoinder.pipeline.replying.text.clauses import MAX_CLAUSE_CHARACTERS, MAX_FIRST_WORDS, ClauseSplitter

TEXTS = st.one_of(
    st.text("ab .,!?;:—-\n\t'\")", max_size=400),
    st.lists(
        st.sampled_from(
            "Well, yes. No! Dr. Smith e.g. 3.14 it's — (hm) or\n 12. a.m. really? … wait; so: not".split(" ")
        ),
        max_size=120,
    ).map(" ".join),
    st.text(max_size=300),
)


def clauses(pieces: list[str]) -> list[str]:
    splitter = ClauseSplitter()
    found = [clause for piece in pieces for clause in splitter.feed(piece)]
    rest = splitter.flush()
    return [*found, rest] if rest else found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", []),
        ("   \n ", []),
        ("Yes.", ["Yes."]),
        ("Yes. It rains. Take care!", ["Yes.", "It rains.", "Take care!"]),
        ("Well, it rains.", ["Well,", "it rains."]),
        ("It is sunny here today but cold.", ["It is sunny", "here today but cold."]),
        ('He said "no!" Then he left.', ['He said "no!"', "Then he left."]),
        ("Really?! Yes…  So be it.", ["Really?!", "Yes…", "So be it."]),
        ("Hi.\n\nOne, two.", ["Hi.", "One, two."]),
        (
            "Hi. This is a longer sentence which goes on for quite some time, and then it goes on.",
            ["Hi.", "This is a longer sentence which goes on for quite some time,", "and then it goes on."],
        ),
        ("Ask Dr. Smith about it.", ["Ask Dr. Smith", "about it."]),
        ("Hi. Fruit, e.g. apples. Or pears.", ["Hi.", "Fruit, e.g. apples.", "Or pears."]),
        ("Hi. Pi is 3.14 or so. At 5 p.m. sharp.", ["Hi.", "Pi is 3.14 or so.", "At 5 p.m. sharp."]),
        ("Hi. J. R. R. Tolkien wrote it.", ["Hi.", "J. R. R. Tolkien wrote it."]),
        ("Hi. Visit example.com today.", ["Hi.", "Visit example.com today."]),
    ],
)
def test_examples(text: str, expected: list[str]) -> None:
    assert clauses([text]) == expected


def test_a_clause_leaves_as_soon_as_it_is_complete() -> None:
    splitter = ClauseSplitter()
    assert splitter.feed("Yes") == []
    assert splitter.feed(".") == []  # it might be 3.14
    assert splitter.feed(" It") == ["Yes."]
    assert splitter.flush() == "It"
    assert splitter.flush() == ""


@given(TEXTS, st.lists(st.integers(0, 400), max_size=20))
@example("Well, it rains. So", [])
@example("a " + "b" * 500 + ". c", [])
@example("one two three of the  - six", [])
@example("it rains and rains all of the day. So", [])
def test_pieces_make_no_difference(text: str, cuts: list[int]) -> None:
    whole = clauses([text])
    assert clauses(list(text)) == whole
    assert clauses(re.findall(r"\S+\s*|\s+", text)) == whole
    edges = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    assert clauses([text[a:b] for a, b in pairwise(edges)]) == whole


class Plain(ClauseSplitter):
    """Cuts each clause off the whole text: slow for a long one, and right by its look."""

    def feed(self, text: str) -> list[str]:
        self._text = (self._text + text).lstrip()
        found = []
        while (end := self._end()) is not None:
            found.append(self._text[:end].strip())
            self._text = self._text[end:].lstrip()
            self._first = False
        return found


@given(st.lists(TEXTS, max_size=4))
@example(["x" * 159 + " ", "y" * 400])
@example(["It is. " * 60, " " * 500 + "Yes, it is. "])
def test_long_texts_give_the_clauses_that_plain_cutting_gives(pieces: list[str]) -> None:
    plain, splitter = Plain(), ClauseSplitter()
    for piece in pieces:
        assert splitter.feed(piece) == plain.feed(piece)
        assert len(splitter._text) <= MAX_CLAUSE_CHARACTERS
    assert splitter.flush() == plain.flush()


def test_a_long_text_is_not_copied_once_for_each_clause() -> None:
    """Counted in characters that are handled, which is no matter of how fast a machine is."""
    handled = 0

    class Counted(str):
        def __getitem__(self, key: Any) -> str:
            nonlocal handled
            handled += len(part := str(self)[key])
            return part

    text = "This is a sentence of it. " * 4_000
    assert len(ClauseSplitter().feed(Counted(text))) > 3_000
    assert handled == len(text)


@given(TEXTS)
def test_nothing_is_lost_and_bounds_hold(text: str) -> None:
    found = clauses([text])
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(clause and clause == clause.strip() for clause in found)
    assert all(len(clause) <= MAX_CLAUSE_CHARACTERS for clause in found)
    assert not found or len(found[0].split()) <= MAX_FIRST_WORDS


def test_text_without_blanks_is_cut_too() -> None:
    assert [len(clause) for clause in clauses(["x" * 400])] == [160, 160, 80]
