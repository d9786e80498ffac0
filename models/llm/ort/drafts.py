"""How a model's answers begin, so that what it will probably say next is checked instead of waited for.

A small model on a processor takes as long for one token as for four: its weights have to be read either way.
So the next tokens are guessed, read together with the last one, and kept as far as the model itself then
chooses the same (speculative decoding, Leviathan et al. 2023; the guesses are n-grams, as in prompt lookup).
Whatever is guessed, each token is chosen by the model from what stands before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

OPENING = 8
"""Tokens of an answer that are guessed at and learnt from: after its first clause nobody waits for words."""
DRAFT = 3
"""Tokens guessed at once: each costs a twentieth of a step, and is right a third of the time."""
PAIRS, FOLLOWERS = 4_096, 64
"""Pairs of tokens that are remembered, those longest unused are forgotten; and what came after each."""

OPENINGS = (
    "I'm sorry, but I'm not",
    "I'm sorry to hear that.",
    "I'm so sorry for",
    "I'm glad to hear that!",
    "I'm happy to help!",
    "I'm here to help.",
    "I'm not sure what",
    "You're welcome! How",
    "You're right.",
    "That's a great question!",
    "That's not what",
    "It sounds like you",
    "The weather's",
    "Yes, it is",
    "No, it isn't",
    "Hello! How are you",
)
"""How small models like to begin: what is known before the first answer."""


class Drafts:
    """What followed each two tokens at the beginning of the answers so far, whoever was answered."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, ...], Counter[int]] = {}

    def learn(self, answer: Sequence[int]) -> None:
        """Remember how an answer began."""
        for place, token in enumerate(answer[:OPENING]):
            pair = _pair(answer[:place])
            followed = self._seen.pop(pair, Counter())
            followed[token] += 1
            self._seen[pair] = followed if len(followed) <= FOLLOWERS else _commonest(followed)
        while len(self._seen) > PAIRS:
            del self._seen[next(iter(self._seen))]

    def following(self, answer: Sequence[int]) -> list[int]:
        """Return up to ``DRAFT`` tokens that may follow an answer so far; none where nothing is known."""
        guessed: list[int] = []
        while len(guessed) < DRAFT and len(answer) + len(guessed) < OPENING:
            followed = self._seen.get(_pair([*answer, *guessed]))
            if followed is None:
                break
            guessed.append(followed.most_common(1)[0][0])
        return guessed


def _commonest(followed: Counter[int]) -> Counter[int]:
    return Counter(dict(followed.most_common(FOLLOWERS // 2)))


def _pair(answer: Sequence[int]) -> tuple[int, ...]:
    return tuple(answer[-2:])
