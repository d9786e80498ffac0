"""Draft tokens for speculative decoding, from the beginnings of earlier answers and from the question.

A small model on a CPU takes as long for one token as for four, because it reads all its weights either way.
So the next tokens are guessed and read together with the last one. A guess is kept if the model itself then
chooses the same token (speculative decoding, Leviathan et al. 2023; the guesses are n-grams, as in prompt
lookup). The guesses never change the answer: the model chooses each token.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

OPENING_TOKENS = 8
"""First tokens of an answer that are guessed and learnt. After the first clause, latency matters less."""
REPEATED = 2
"""Most tokens at the end of the answer that are looked up in the question, which answers often repeat."""
QUESTION_TOKENS = 96
"""Last tokens of the prompt in which they are looked up."""
DRAFT = 3
"""Tokens guessed at once. A guess costs a twentieth of a step and is right a third of the time."""
MOST_PAIRS = 4_096
"""Most token pairs kept; the least recently learnt are dropped."""
FOLLOWERS = 64
"""Most different next tokens counted for a pair; beyond it, the more common half is kept."""

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
"""Common beginnings of answers, learnt before the first answer."""


class Drafts:
    """Counts of the next token after each pair of tokens, from the beginnings of all answers so far."""

    def __init__(self) -> None:
        self._seen: dict[tuple[int, ...], Counter[int]] = {}

    def learn(self, answer: Sequence[int]) -> None:
        """Count the tokens at the beginning of an answer."""
        for place, token in enumerate(answer[:OPENING_TOKENS]):
            pair = _pair(answer[:place])
            followed = self._seen.pop(pair, Counter())
            followed[token] += 1
            self._seen[pair] = followed if len(followed) <= FOLLOWERS else _commonest(followed)
        while len(self._seen) > MOST_PAIRS:
            del self._seen[next(iter(self._seen))]

    def following(self, answer: Sequence[int], prompt: Sequence[int] = ()) -> list[int]:
        """Return up to ``DRAFT`` tokens that may follow ``answer``; none for an unknown beginning.

        prompt: the tokens before the answer.
        """
        guessed: list[int] = []
        question = prompt[-QUESTION_TOKENS:]
        while len(guessed) < DRAFT and len(answer) + len(guessed) < OPENING_TOKENS:
            begun = [*answer, *guessed]
            followed = self._seen.get(_pair(begun))
            if (next_token := _repeated(question, begun)) is None and followed is not None:
                next_token = followed.most_common(1)[0][0]
            if next_token is None:
                break
            guessed.append(next_token)
        return guessed


def _repeated(question: Sequence[int], begun: Sequence[int]) -> int | None:
    """Return the token that follows the last tokens of ``begun`` in the question, at its last such place."""
    for length in range(min(REPEATED, len(begun)), 0, -1):
        for place in range(len(question) - length - 1, -1, -1):
            if question[place : place + length] == begun[-length:]:
                return question[place + length]
    return None


def _commonest(followed: Counter[int]) -> Counter[int]:
    return Counter(dict(followed.most_common(FOLLOWERS // 2)))


def _pair(answer: Sequence[int]) -> tuple[int, ...]:
    return tuple(answer[-2:])
