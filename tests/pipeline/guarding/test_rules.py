"""The rules for the agent's words, as plain functions."""

from __future__ import annotations

import re
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejoinder.pipeline.guarding.rules import Finding, Rules
from rejoinder.pipeline.guarding.screening import LOOK_BACK, MAX_HELD, Screening
from rejoinder.pipeline.guarding.sentence_buffer import MAX_PIECE, SentenceBuffer


def numbers(text: str) -> Iterable[tuple[int, int, str]]:
    """Find numbers of eight digits, in groups or not."""
    for found in re.finditer(r"\d(?:[ ,-]*\d){7}", text):
        yield found.start(), found.end(), "a number"


def passes(rules: Rules, *clauses: str) -> tuple[str, str]:
    """Return the words that pass, and why the rest is refused."""
    screening, said = Screening(rules), []
    for finding in [*map(screening.feed, clauses), screening.flush()]:
        if finding.text:
            said.append(finding.text)
        if finding.refused:
            return " ".join(said), finding.refused
    return " ".join(said), ""


@pytest.mark.parametrize(
    ("block", "clause", "refused"),
    [
        ("damn", "Well, damn it.", True),
        ("damn", "DAMN.", True),
        ("damn", "ｄａｍｎ.", True),
        ("damn", "The dam is high, and damned souls are dammed.", False),
        ("go to hell", "Go, to — HELL!", True),
        ("go to hell", "Go to the hell.", False),
        ("don't", "Don’t.", True),
        ("don’t", "Don't.", True),
        ("don", "Don't.", False),
        ("Acme", "Acme's offer.", True),
        ("Acme", "Acme’s offer.", True),
        ("acme", "C'est l'Acme.", True),
        ("damn", "It is _damn_ cold.", True),
        ("damn", "It is da**mn** cold.", True),
        ("damn", "It is da\u200bmn cold.", True),
        ("damn", "It is da\u00admn cold.", True),
        ("café", "The cafe\u0301.", True),
        ("cafe\u0301", "The café.", True),
        ("cafe", "The cafe\u0301.", False),
        ("Acme", "我们推荐Acme产品。", True),
        ("काम", "कि मैं", False),
        ("काम", "यह काम है।", True),
        ("ﾊﾞｶ", "あなたはバカです。", True),
        ("don't", "Don't.", True),
        ("straße", "Die STRASSE.", True),
        ("坏话", "他说坏话。", True),
        ("坏话", "他说好话。", False),
        ("坏话", "他说坏，话。", True),
    ],
)
def test_whole_words_are_blocked_in_any_spelling(block: str, clause: str, refused: bool) -> None:
    assert bool(Rules([block]).check("", clause).refused) is refused


def test_a_blocked_phrase_may_span_clauses() -> None:
    rules = Rules(["go to hell", "hot dog"])
    assert passes(rules, "Sure.", "You can go", "to hell.") == ("Sure.", "block"), "no word of it is heard"
    assert passes(rules, "You can go", "to sleep.") == ("You can go to sleep.", "")
    assert passes(rules, "You can go") == ("You can go", "")
    assert passes(rules, "It is hot.", "Dog food is cheap.") == ("It is hot.", "block")
    chinese = Rules(["坏话"])
    assert passes(chinese, "他说坏", "话。") == ("", "block")
    assert passes(chinese, "他说坏", "人。") == ("他说坏 人。", "")


def test_a_pattern_sees_some_words_before_the_clause_and_nothing_refused_before() -> None:
    rules = Rules(patterns={"price": r"\bcosts\b.*\bdollars\b"})
    assert passes(rules, "It costs about ten", "dollars.") == ("It costs about ten", "price")
    far = "x" * LOOK_BACK
    assert passes(rules, "It costs", far, "ten dollars.") == (f"It costs {far} ten dollars.", "")
    assert Rules(patterns={"a": "one"}).check("one ", "two").refused == "", "it ended before the clause"


def test_numbers_are_redacted_whole_where_they_span_clauses() -> None:
    rules = Rules(redactors=[numbers])
    assert passes(rules, "It is 1234,", "5678.", "Bye.") == ("It is a number. Bye.", "")
    assert passes(rules, "It is 1234,", "567.") == ("It is 1234, 567.", "")
    assert passes(rules, "It is 1234") == ("It is 1234", "")
    assert rules.check("It is 1234. ", "5678.") == Finding("5678.")
    assert rules.check("It is 12345, ", "678 then.") == Finding("a number then.", "", 1)
    assert rules.check("", "12345678 and 87654321.").text == "a number and a number."


def test_overlapping_redactions_are_one() -> None:
    def inner(text: str) -> Iterable[tuple[int, int, str]]:
        return [(found.start(), found.end(), "five") for found in re.finditer("5678", text)]

    assert Rules(redactors=[numbers, inner]).check("", "12345678!") == Finding("a number!", "", 1)


def test_a_clause_waits_only_so_long() -> None:
    screening = Screening(Rules(redactors=[numbers]))
    clause = "7, " * 30
    waited = 0
    while not screening.feed(clause).text:
        waited += len(clause)
        assert waited <= MAX_HELD + len(clause)


@pytest.mark.parametrize(
    ("scripts", "clause", "refused"),
    [
        (["latin"], "Ça va, Straße, naïve — 5 µm, €3, 😀.", ""),
        (["latin"], "The answer is 你好.", "script cjk"),
        (["latin"], "Это да.", "script cyrillic"),
        (["cyrillic"], "Это да.", ""),
        (["cyrillic"], "Это yes.", "script latin"),
        (["latin", "Greek"], "Ωmega.", ""),
        (["hangul"], "안녕하세요.", ""),
        (["latin"], "ｄａｍｎ", ""),
    ],
)
def test_letters_of_other_alphabets_are_refused(scripts: list[str], clause: str, refused: str) -> None:
    assert Rules(scripts=scripts).check("", clause).refused == refused


def test_a_reply_has_a_greatest_length() -> None:
    rules = Rules(max_characters=12)
    assert passes(rules, "Six is.", "Five.", "One.") == ("Six is. Five.", "length")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"block": ["!"]}, "has no word"),
        ({"patterns": {"bad": "("}}, "bad: '\\('"),
        ({"scripts": ["klingon"]}, "is no alphabet"),
    ],
)
def test_rules_that_cannot_work_are_refused(given: dict[str, object], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Rules(**given)  # type: ignore[arg-type]


WORDS = st.lists(st.sampled_from(["go", "to", "hell", "sleep", "12", "345678", "fine."]), max_size=12)


@given(WORDS, st.lists(st.integers(1, 4), min_size=12, max_size=12))
def test_a_blocked_phrase_is_refused_however_the_words_are_cut(words: list[str], sizes: list[int]) -> None:
    rules, clauses, rest = Rules(["go to hell"], redactors=[numbers]), [], list(words)
    for size in sizes:
        if rest:
            clauses.append(" ".join(rest[:size]))
            rest = rest[size:]
    said, refused = passes(rules, *clauses)
    assert "go to hell" not in said
    assert bool(refused) is ("go to hell" in " ".join(words))
    assert "12 345678" not in said


@given(st.text(alphabet="ab .!?\n。", max_size=600), st.integers(1, 50))
def test_the_pieces_of_a_text_are_the_text(text: str, size: int) -> None:
    pieces = SentenceBuffer()
    cut = [piece for at in range(0, len(text), size) for piece in pieces.feed(text[at : at + size])]
    assert "".join([*cut, pieces.flush()]) == text
    assert max(map(len, cut), default=0) <= MAX_PIECE
