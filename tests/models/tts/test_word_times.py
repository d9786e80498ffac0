"""Word times: from phonemes to spoken words, and from these to the words of the text."""

from __future__ import annotations

import math
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejoinder.models.tts.word_times import sounds, word_times


def over(text: str, words: str, spoken: list[str], ends: list[float] | None = None) -> dict[str, float]:
    """Return the second at which each word of the text ends, if each phoneme word takes 1 s."""
    found = word_times(
        text, words, spoken, [*map(float, range(1, len(spoken) + 1))] if ends is None else ends
    )
    begin, times = 0, {}
    for time, end in found:
        times[text[begin:end].strip()] = round(time, 2)
        begin = end
    return times


def test_words_spoken_as_written() -> None:
    text = "Hello there, it is sunny."
    found = over(text, text, ["həlˈoʊ", "ðˈɛɹ,", "ɪɾ", "ɪz", "sˈʌni."])
    assert found == {"Hello": 1, "there,": 2, "it": 3, "is": 4, "sunny.": 5}


# espeak-ng's phonemes for these sentences, and the phoneme word in which each word of a sentence is.
@pytest.mark.parametrize(
    ("text", "spoken", "places"),
    [
        (
            "That has been one of the best; what is it to you? It was a good one.",
            "ðɐthɐzbˌɪn wˈʌn ʌvðə bˈɛst; wˌʌt ɪz ɪt tə juː? ɪt wʌzɐ ɡˈʊd wˌʌn.",
            [1, 1, 1, 2, 3, 3, 4, 5, 6, 7, 8, 9, 10, 11, 11, 12, 13],
        ),
        (
            "doctor Smith lives on the third floor of the U.S. embassy in the U.K.",
            "dˈɑːktɚ smˈɪθ lˈaɪvz ɔnðə θˈɜːd flˈɔːɹ ʌvðə jˌuːˈɛs ˈɛmbəsiʲ ɪnðə jˌuːkˈeɪ.",
            [1, 2, 3, 4, 4, 5, 6, 7, 7, 8, 9, 10, 10, 11],
        ),
        (
            "produced the block books, which were the immediate predecessors of the true printed book,",
            "pɹədˈuːst ðə blˈɑːk bˈʊks, wˌɪtʃ wɜː ðɪʲ ɪmˈiːdɪʲət pɹˈɛdᵻsˌɛsɚz ʌvðə tɹˈuː pɹˈɪntᵻd bˈʊk",
            [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 10, 11, 12, 13],
        ),
        (
            "his statement of having been a shop boy was the thing i liked best of all",
            "hɪz stˈeɪtmənt ʌv hˌævɪŋ bˌɪn ɐ ʃˈɑːp bˈɔɪ wʌzðə θˈɪŋ ˈaɪ lˈaɪkt bˈɛst ʌv ˈɔːl",
            [1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 10, 11, 12, 13, 14, 15],
        ),
    ],
)
def test_joined_words(text: str, spoken: str, places: list[int]) -> None:
    found = word_times(text, text, spoken.split(), [*map(float, range(1, len(spoken.split()) + 1))])
    assert [math.ceil(time - 1e-9) for time, _ in found] == places


def test_joined_words_share_their_time() -> None:
    assert over("been one of the best", "been one of the best", ["bɪn", "wʌn", "ʌvðə", "bɛst"]) == {
        "been": 1,
        "one": 2,
        "of": 2.67,  # two sounds of three
        "the": 3,
        "best": 4,
    }


def test_spelled_out_word_has_several_phoneme_words() -> None:
    found = over("the HTTP page", "the HTTP page", ["ðə", "eɪtʃ", "tiː", "tiː", "piː", "peɪdʒ"])
    assert found == {"the": 1, "HTTP": 5, "page": 6}


@pytest.mark.parametrize(
    ("text", "words", "times"),
    [
        ("It costs $12.50 now", "It costs twelve dollars fifty cents now", [1, 2, 6, 7]),
        ("Mix 200 ml of it", "Mix two hundred milliliters of it", [1, 3, 4, 5, 6]),
        ("in 1984 — or so", "in nineteen eighty four, or so", [1, 4, 4, 5, 6]),
        ("it is **so** good 🎉", "it is so good", [1, 2, 3, 4, 4]),
        ("2 + 2 = 4", "two plus two equals four", [1, 2, 3, 4, 5]),
        ("at 10:30 AM on", "at ten thirty a m on", [1, 3, 5, 6]),
    ],
)
def test_words_spoken_in_other_words(text: str, words: str, times: list[float]) -> None:
    found = word_times(text, words, words.split(), [*map(float, range(1, len(words.split()) + 1))])
    assert [time for time, _ in found] == times
    assert [text[:end].split()[-1] for _, end in found] == text.split()


def test_unspoken_text_before_the_first_word_gets_its_time() -> None:
    text = "- Yes it is"
    found = word_times(text, "Yes it is", ["jɛs", "ɪt", "ɪz"], [1.0, 2.0, 3.0])
    assert [(time, text[:end]) for time, end in found] == [(1, "- Yes"), (2, "- Yes it"), (3, text)]


def test_no_known_ends_give_no_times() -> None:
    assert over("Yes. It does.", "Yes. It does.", ["jɛs.", "ɪt", "dʌz."], ends=[0.5]) == {"Yes.": 0.5}
    assert over("Yes. It does.", "Yes. It does.", ["jɛs.", "ɪt", "dʌz."], ends=[]) == {}


def test_pauses_are_not_part_of_a_word() -> None:
    said = [("j", 10), ("ɛ", 20), ("s", 30), (",", 90), (" ", 95), ("n", 100), ("oʊ", 110), (".", 200)]
    assert sounds(said) == (["jɛs,", "noʊ."], [30, 110])
    assert sounds([("—", 10), (" ", 20), ("a", 30)]) == (["—", "a"], [10, 30])


WORDS = st.lists(st.text("aehknst.,", min_size=1, max_size=8), max_size=14)


@given(
    st.text("ab 19$—.,", max_size=60),
    WORDS,
    st.lists(st.tuples(st.text("ˈaɪʃtn.", min_size=1, max_size=9), st.floats(0.01, 1.0)), max_size=14),
    st.integers(0, 14),
)
def test_any_text_and_any_phonemes_give_times_in_order(
    text: str, words: list[str], spoken: list[tuple[str, float]], known: int
) -> None:
    ends = [*accumulate(seconds for _, seconds in spoken)][:known]
    found = word_times(text, " ".join(words), [sound for sound, _ in spoken], ends)
    assert list(found) == sorted(found)
    assert len({end for _, end in found}) == len(found)
    assert all(0 <= time <= (ends or [0])[-1] for time, _ in found)
    assert all(end <= len(text) for _, end in found)
    if found and known >= len(spoken) and words:
        assert found[-1][1] == len(text.rstrip())
