"""Choose the next token: repetition penalty, temperature, top-k and top-p, as llama.cpp applies them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rejoinder.models.llm.ort.decoder import Logits


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling parameters. With the default a very small model makes fewer errors than with greedy decoding.

    temperature: 0 is greedy.
    top_k: number of most likely tokens that are considered.
    top_p: share of the probability that the considered tokens cover.
    penalty: lowers the logits of the last ``memory`` tokens (Keskar et al. 2019).
    """

    temperature: float = 0.4
    top_k: int = 40
    top_p: float = 0.9
    penalty: float = 1.1
    memory: int = 64


def choose(logits: Logits, before: Sequence[int], sampling: Sampling, random: np.random.Generator) -> int:
    """Return the token to follow ``before``. logits: float32 [vocabulary]."""
    scores = logits.copy()
    repeated = np.unique(np.asarray(before[-sampling.memory :], np.int64))
    some = scores[repeated]
    scores[repeated] = np.where(some > 0, some / sampling.penalty, some * sampling.penalty)
    if sampling.temperature == 0:
        return int(scores.argmax())
    best = np.argpartition(scores, -sampling.top_k)[-sampling.top_k :]
    best = best[np.argsort(-scores[best])]
    weights = np.exp((scores[best] - scores[best[0]]).astype(np.float64))
    # Includes the token with which the sum reaches top_p.
    likely = np.cumsum(weights) - weights < sampling.top_p * weights.sum()
    chances = np.where(likely, weights ** (1 / sampling.temperature), 0)
    return int(random.choice(best, p=chances / chances.sum()))
