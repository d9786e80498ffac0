"""Words in their forms for comparisons."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejoinder.pipeline.words import normalise, same_words, without_blanks

WORDS = st.lists(
    st.sampled_from(["what", "is", "C", "it's", "Ça", "5", "35", "straße", "ХОРОШО", "天気", "ฟ้า", "कि"]),
    min_size=1,
    max_size=6,
)
BETWEEN = st.sampled_from(
    [" ", ", ", "  ", "; ", ": ", " (", ") ", " “", "” ", "… ", "\n", "! ", "? ", "。 "]
)
AT_THE_END = st.sampled_from(["", ".", "?", "!", "?!", "…", " .", '."', ")", "。", "？", " "])
SYMBOLS = st.sampled_from([*"+#$€£%&@=<>°×÷*/^~|"])


def test_normalised_words() -> None:
    assert normalise("  It's 5 O'clock, isn't it?! ") == "it's 5 o'clock isn't it"
    assert normalise("Ça va?") == "ça va"
    assert normalise("…") == ""


DIFFERENT = [
    ("What is C?", "What is C++?"),
    ("What is C?", "What is C#?"),
    ("What is C++?", "What is C#?"),
    ("-5", "5"),
    ("Is it -5 degrees?", "Is it 5 degrees?"),
    ("3.5", "35"),
    ("3.5", "3 5"),
    ("Version 3.5.", "Version 3, 5."),
    ("$5", "5"),
    ("$5", "€5"),
    ("5%", "5"),
    (".5", "5"),
    ("3:5", "35"),
    ("3/5", "35"),
    ("3 - 5", "3 5"),
    ("x²", "x2"),
    ("its", "it's"),
    ("कि", "का"),
    ("ขาว", "ข้าว"),
    ("Yes", "No"),
]
ALIKE = [
    ("What is C?", "what is c"),
    ("Well-known, isn't it?", "well known isn't it"),
    ("It's fine.", "it’s fine"),
    ("3.5.", "3.5"),
    ("−5", "-5"),
    ("C++!", "c++"),
    ("Yes - no", "yes no"),
    ("你好。再见！", "你好再见"),
    ("今日は、いい天気。", "今日は いい天気"),
    ("", "…"),
    ("STRASSE", "straße"),
]


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_symbol_that_changes_the_meaning_counts(one: str, other: str) -> None:
    assert not same_words(one, other) and not same_words(other, one)


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_case_and_punctuation_do_not_count(one: str, other: str) -> None:
    assert same_words(one, other) and same_words(other, one)


@given(words=WORDS, data=st.data())
def test_punctuation_around_words_never_counts(words: list[str], data: st.DataObject) -> None:
    plain = " ".join(words)
    written = words[0]
    for word in words[1:]:
        written += data.draw(BETWEEN) + word
    written += data.draw(AT_THE_END)
    change = data.draw(st.sampled_from([str, str.upper, str.lower, str.title]))
    assert same_words(plain, change(written))


@given(words=WORDS, data=st.data())
def test_symbol_at_a_word_always_counts(words: list[str], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(words) - 1))
    word, symbol = words[at], data.draw(SYMBOLS)
    if symbol == "/":  # a punctuation mark between words, which counts in a number
        changed = "3/5"
        words = [*words[:at], "3 5", *words[at + 1 :]]
    else:
        changed = data.draw(st.sampled_from([word + symbol, symbol + word]))
    assert not same_words(" ".join(words), " ".join([*words[:at], changed, *words[at + 1 :]]))


@given(number=st.integers(0, 10_000), digits=st.integers(0, 99), words=WORDS)
def test_sign_and_point_of_a_number_always_count(number: int, digits: int, words: list[str]) -> None:
    said = " ".join(words)
    for one, other in [
        (f"{said} -{number}", f"{said} {number}"),
        (f"{number}.{digits}", f"{number}{digits}"),
        (f"{number}.{digits} {said}", f"{number} {digits} {said}"),
    ]:
        assert not same_words(one, other)


@given(one=st.text(max_size=12), other=st.text(max_size=12))
def test_any_text_is_the_same_as_itself_and_never_fails(one: str, other: str) -> None:
    assert same_words(one, one)
    assert same_words(one, other) == same_words(other, one)
    assert same_words(one + "?", one)


def test_scripts_without_blanks() -> None:
    assert all(map(without_blanks, "天気てんきテンキไทย我ລາວខ្មែរမြန်"))
    assert not any(map(without_blanks, "aßжक한5 .。"))
