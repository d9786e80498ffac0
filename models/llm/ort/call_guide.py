"""Chooses the tokens of an answer that may call tools, so that each call has the form of a call.

A small model decides well when to call a tool, but not in which form: Qwen2.5-Coder 0.5B copies the
definition of the tool, or invents a name. So the model decides whether an object begins, which of the tools
it names, and the arguments. The rest is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from rejoinder.models.llm.ort.decoder import Logits
from rejoinder.models.llm.ort.sampling import Sampling, choose


class CallGuide:
    """Chooses the tokens of one answer.

    openings: the tokens that begin a call, for each tool; none for an answer in words only.
    braces: the tokens that contain a brace, int64 [tokens].
    sampling: sampling of words. Within a call the most likely token is chosen: the penalty on repetition
        would alter the words that a call takes from the request.
    """

    def __init__(
        self,
        openings: Iterable[Sequence[int]],
        braces: np.ndarray[tuple[int], np.dtype[np.int64]],
        sampling: Sampling,
        random: np.random.Generator,
    ) -> None:
        self.in_call = False
        self._openings = [list(opening) for opening in openings]
        self._braces = braces
        self._sampling = sampling
        self._random = random
        self._begun: list[int] | None = None

    def begin(self) -> list[int]:
        """Begin a call. Return its first tokens, up to the one that the model must choose."""
        self._begun = []
        return self._forced()

    def next(self, logits: Logits, before: Sequence[int]) -> list[int]:
        """Return the next tokens of the answer, at least one. logits: float32 [vocabulary], after ``before``.

        Set ``in_call`` to whether these tokens are in an unfinished call before the next request.
        """
        if self._begun is not None:
            token = max(self._allowed(), key=lambda one: float(logits[one]))
            self._begun.append(token)
            return [token, *self._forced()]
        if self.in_call:
            return [choose(logits, before, replace(self._sampling, temperature=0, penalty=1), self._random)]
        if not self._openings:
            logits = logits.copy()
            logits[self._braces] = -np.inf
        token = choose(logits, before, self._sampling, self._random)
        return self.begin() if self._openings and token in self._braces else [token]

    def _forced(self) -> list[int]:
        """Return the tokens that all openings share from here on."""
        forced: list[int] = []
        while self._begun is not None:
            allowed = self._allowed()
            if not allowed:
                self._begun = None
            elif len(allowed) > 1:
                break
            else:
                (token,) = allowed
                self._begun.append(token)
                forced.append(token)
        return forced

    def _allowed(self) -> set[int]:
        begun = self._begun or []
        place = len(begun)
        return {one[place] for one in self._openings if one[:place] == begun and len(one) > place}
