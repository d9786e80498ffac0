"""The time at which each word of a text is spoken, from a voice's phonemes and their lengths.

The spoken words differ from the text ("$5" is "five dollars"), and espeak-ng joins words ("that has been" is
one). The functions here align the text with the spoken words, and those with the phonemes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from itertools import accumulate, groupby

import numpy as np

PAUSES = ",.;:!?"
"""Characters, and phonemes, that stand for a pause."""
MOST_TOGETHER = 5
"""Most words that are joined into one phoneme word, and most phoneme words of one word."""
SPELLED_OUT = 2.0
"""Cost, in mismatched sounds, of matching one word with several phoneme words, which is rare."""
SLACK = 3
"""Most words by which an alignment may differ from the difference between the two word counts."""
LETTERS_PER_DIGIT = 3.0
"""Approximate length, in letters, of the words for a digit or a symbol."""

SPELLING = [
    (re.compile(pattern), sound)
    for pattern, sound in (
        (r"[^a-z]", ""), (r"(.)\1", r"\1"), (r"(?<=[^aeiouy])e(?=s?$)", ""), (r"^k(?=n)|^w(?=r)|gh", ""),
        (r"t?ch", "C"), (r"th", "t"), (r"sh|c(?=[eiy])", "s"), (r"ph", "f"), (r"ck|[cq]", "k"), (r"x", "ks"),
        (r"dg", "j"), (r"ng", "n"), (r"(?<=[aeiouy])w|[aeiouy]+", "a"), (r"a+", "a"),
    )
]  # fmt: skip
"""Rules from letters to rough sounds: consonants, and an "a" for each vowel."""
SOUNDS = [
    (re.compile(pattern), sound)
    for pattern, sound in (
        (r"[^\w]|[ːˈˌʲj]", ""), (r"tʃ|ʧ", "C"), (r"d?ʒ|ʤ", "j"), (r"[θðɾʔT]", "t"), (r"ʃ", "s"), (r"ŋ", "n"),
        (r"ɹ", "r"), (r"[ɚɝ]", "ar"), (r"ɡ", "g"), (r"[aeiouæɑɐɒɔəɛɜɪʊʌᵻᵊAIOQWY]+", "a"),
    )
]  # fmt: skip
"""Rules from phonemes, as espeak-ng and misaki write them, to rough sounds."""


def word_times(
    text: str, words: str, spoken: Sequence[str], ends: Sequence[float]
) -> tuple[tuple[float, int], ...]:
    """Return for each word of ``text`` the second at which it ends, and its last character's index plus 1.

    words: the spoken form of ``text``.
    spoken: the phonemes of ``words``, one string per word.
    ends: the second at which each of these ends, for the words known so far. Later words are left out.
    """
    written, said = list(re.finditer(r"\S+", text)), words.split()
    if not ends or not written or not said:
        return ()
    places = np.interp(
        _spoken_places([token[0] for token in written], said), *_from_zero(_phoneme_places(said, spoken))
    )
    times = np.interp(places, *_from_zero(ends))
    return tuple(
        (float(time), token.end())
        for token, place, time in zip(written, places, times, strict=True)
        if 0 < place <= len(ends)
    )


def sounds(phonemes: Iterable[tuple[str, int]]) -> tuple[list[str], list[int]]:
    """Return the words in a sequence of phonemes, and the sample at which each word ends.

    phonemes: each with the sample after it. The pause of a comma is not part of the word before it.
    """
    words, ends = [], []
    for blank, group in groupby(phonemes, key=lambda each: each[0].isspace()):
        if not blank:
            word = list(group)
            words.append("".join(phoneme for phoneme, _ in word))
            ends.append(next((end for phoneme, end in reversed(word) if phoneme not in PAUSES), word[0][1]))
    return words, ends


def _from_zero(values: Sequence[float]) -> tuple[range, list[float]]:
    return range(len(values) + 1), [0.0, *values]


def _spoken_places(written: Sequence[str], said: Sequence[str]) -> list[float]:
    """Return for each word of the text how many spoken words have ended when it ends."""
    places: list[float] = []
    matcher = SequenceMatcher(
        None, [_normalised(word) for word in written], [_normalised(word) for word in said], False
    )
    for kind, first, last, begin, end in matcher.get_opcodes():
        if kind == "equal":
            places += range(begin + 1, end + 1)
            continue
        lengths = list(accumulate((_spoken_length(word) for word in written[first:last]), initial=0.0))
        spoken = list(accumulate((len(word) for word in said[begin:end]), initial=0))
        for place, length in enumerate(lengths[1:], 1):  # by length, with at least one spoken word each
            share = spoken[-1] * length / lengths[-1] if lengths[-1] else 0.0
            after = len(set(lengths[place:])) - 1
            ends = range(len(set(lengths[: place + 1])) - 1, len(spoken) - after) or range(len(spoken))
            places.append(begin + min(ends, key=lambda end: abs(spoken[end] - share)))
    return places


def _normalised(word: str) -> str:
    return "".join(filter(str.isalnum, word)).lower()


def _spoken_length(word: str) -> float:
    return sum(LETTERS_PER_DIGIT if c.isdigit() or c in "$€£%&+=@" else float(c.isalpha()) for c in word)


def _phoneme_places(said: Sequence[str], spoken: Sequence[str]) -> list[float]:
    """Return for each spoken word how many phoneme words have ended when it ends.

    If the two counts differ, joined words share a phoneme word, and a spelled-out word has several. The
    alignment with the lowest cost is taken: by lengths, first and last sounds, and pauses.
    """
    if len(said) == len(spoken):
        return [*range(1, len(said) + 1)]
    left, right = (
        [_rough_sounds(word, SPELLING) for word in said],
        [_rough_sounds(sound, SOUNDS) for sound in spoken],
    )
    long, heard = (list(accumulate(map(len, each), initial=0)) for each in (left, right))
    more = len(left) - len(right)
    best: dict[tuple[int, int], tuple[float, int, int]] = {(0, 0): (0.0, 0, 0)}
    for i in range(1, len(left) + 1):
        for j in range(max(1, i - max(0, more) - SLACK), min(len(right), i - min(0, more) + SLACK) + 1):
            cost = int((said[i - 1][-1] in PAUSES) != (spoken[j - 1][-1] in PAUSES))
            cost += left[i - 1][-1] != right[j - 1][-1]
            choices: list[tuple[float, int, int]] = []
            for k, m in _before(i, j):
                if (k, m) in best:
                    length = abs(long[i] - long[k] - heard[j] + heard[m]) / 2
                    length += (left[k][0] != right[m][0]) + (j - m > 1) * SPELLED_OUT
                    choices.append((best[k, m][0] + cost + length, k, m))
            if choices:
                best[i, j] = min(choices)
    places, i, j = [0.0] * len(left), len(left), len(right)
    if (i, j) not in best:
        return [j * length / long[-1] for length in long[1:]]
    while i:
        _, k, m = best[i, j]
        for word in range(k, i):
            places[word] = m + (j - m) * (long[word + 1] - long[k]) / (long[i] - long[k])
        i, j = k, m
    return places


def _before(i: int, j: int) -> list[tuple[int, int]]:
    together = [(i - n, j - 1) for n in range(1, MOST_TOGETHER + 1)]
    return together + [(i - 1, j - n) for n in range(2, MOST_TOGETHER + 1)]


def _rough_sounds(word: str, rules: list[tuple[re.Pattern[str], str]]) -> str:
    word = word.lower() if rules is SPELLING else word
    for pattern, sound in rules:
        word = pattern.sub(sound, word)
    return word or "a"
