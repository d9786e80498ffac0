"""Chooses the tokens of an answer that may call tools, so that each call has the form of a call.

A small model knows when to call a tool better than in which form: Qwen2.5-Coder 0.5B copies the definition
of the tool, or invents a name. So the model decides whether a call begins, which of the tools it names, and
the arguments. The rest is given.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from rejoinder.models.llm.ort.decoder import Logits
from rejoinder.models.llm.ort.sampling import Sampling, choose

TokenIds = np.ndarray[tuple[int], np.dtype[np.int64]]
"""Tokens, int64 [tokens]."""


@dataclass(frozen=True, slots=True)
class CallOpening:
    """The tokens that begin a call of one tool, up to its arguments.

    name_start, name_end: indexes of the first token of the tool's name, and after its last one.
    """

    tokens: Sequence[int]
    name_start: int
    name_end: int


class CallOpenings:
    """The openings of all tools that an answer may call; none for an answer in words only."""

    def __init__(self, openings: Sequence[CallOpening]) -> None:
        self._openings = openings

    def __bool__(self) -> bool:
        return bool(self._openings)

    def after(self, begun: Sequence[int]) -> set[int]:
        """Return the tokens that may follow, none if the opening is complete."""
        return {one.tokens[len(begun)] for one in self._beginning_with(begun) if len(one.tokens) > len(begun)}

    def forced(self, begun: Sequence[int]) -> list[int]:
        """Return the tokens that follow in all openings that begin so."""
        forced: list[int] = []
        while len(allowed := self.after([*begun, *forced])) == 1:
            forced.extend(allowed)
        return forced

    def in_name(self, begun: Sequence[int]) -> bool:
        """Return whether the token after ``begun`` belongs to a name."""
        return any(one.name_start <= len(begun) < one.name_end for one in self._beginning_with(begun))

    def _beginning_with(self, begun: Sequence[int]) -> list[CallOpening]:
        return [one for one in self._openings if list(one.tokens[: len(begun)]) == list(begun)]


class CallGuide:
    """Chooses the tokens of one answer.

    in_call: whether the answer so far ends within a call; the caller sets it.
    marks: the tokens that may begin a call. unspoken: the tokens that an answer in words does without.
    sampling: sampling of words.
    """

    def __init__(
        self,
        openings: CallOpenings,
        marks: TokenIds,
        unspoken: TokenIds,
        sampling: Sampling,
        random: np.random.Generator,
    ) -> None:
        self.in_call = False
        self._openings = openings
        self._marks = marks
        self._unspoken = unspoken
        self._words = sampling
        # The penalty on repetition would alter the words that a call takes from the request.
        self._precise = replace(sampling, temperature=0, penalty=1)
        self._random = random
        self._begun: list[int] | None = None
        self._has_called = False

    def next(self, logits: Logits, before: Sequence[int]) -> list[int]:
        """Return the next tokens of the answer, at least one. logits: float32 [vocabulary], after ``before``.

        An answer in words has no calls: whether it begins with one is decided before. After a call, the model
        may make another one. Then the most likely token is chosen, so that chance makes no calls.
        """
        if self._begun is not None:
            return self._open([most_likely(logits, self._openings.after(self._begun))])
        if self.in_call:
            self._has_called = True
        elif not self._has_called:
            logits = logits.copy()
            logits[self._unspoken] = -np.inf
        token = choose(logits, before, self._precise if self._has_called else self._words, self._random)
        if self.in_call or token not in self._marks:
            return [token]
        self._begun = []
        return self._open([])

    def _open(self, chosen: list[int]) -> list[int]:
        begun = [*(self._begun or []), *chosen]
        forced = self._openings.forced(begun)
        begun += forced
        self._begun = begun if self._openings.after(begun) else None
        return chosen + forced


def most_likely(logits: Logits, tokens: set[int]) -> int:
    """Return the most likely of these tokens. logits: float32 [vocabulary]."""
    return max(sorted(tokens), key=lambda token: float(logits[token]))


def probability(logits: Logits, tokens: TokenIds | list[int]) -> float:
    """Return the probability that the next token is one of these. logits: float32 [vocabulary]."""
    weights = np.exp(logits - logits.max())
    return float(weights[tokens].sum() / weights.sum())
