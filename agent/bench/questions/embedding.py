"""What an embedding of sentences would do in place of the rules: all-MiniLM-L6-v2 in onnxruntime."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rejoinder.agent.bench.questions.judging import same
from rejoinder.agent.bench.questions.sets import Pair, contrasts, paraphrases
from rejoinder.models.caching.meaning import meaning
from rejoinder.models.hints import needing

Similarity = Callable[[Pair], float]
"""Returns how similar two questions are, up to 1."""


@dataclass(frozen=True, slots=True)
class EmbeddingResult:
    """The figures of the judged half, at a threshold chosen on the other half.

    threshold: the largest similarity of a contrast there, so that none is a hit. hits: paraphrases above it.
    false: contrasts above it.
    """

    threshold: float
    hits: int
    paraphrases: int
    false: int
    contrasts: int


def similarity_of(folder: Path) -> Similarity:
    """Return the cosine similarity of two questions.

    folder: holds ``model.onnx`` (inputs: input_ids, attention_mask, token_type_ids; output: one vector for
    each token, whose mean is the embedding) and ``tokenizer.json``. Raises NotInstalled.
    """
    with needing("local", "the embedding"):
        import onnxruntime
        from tokenizers import Tokenizer
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()

    def embedded(text: str) -> NDArray[np.float32]:
        ids = np.array([tokenizer.encode(text).ids], dtype=np.int64)
        given = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
        vector: NDArray[np.float32] = session.run(None, given)[0][0].mean(0)
        return vector / np.linalg.norm(vector)

    return lambda pair: float(embedded(pair.one) @ embedded(pair.other))


def instead_of_rules(similarity: Similarity) -> EmbeddingResult:
    """Return what the embedding finds alone."""
    return _judged(similarity, lambda pair: False, lambda pair: True)


def beside_rules(similarity: Similarity) -> EmbeddingResult:
    """Return what the rules find, and the embedding among pairs of which one has words more than the other.

    So numbers, names, negations and all else that is replaced by another word still count as different.
    """
    return _judged(similarity, same, _one_has_more)


def _judged(
    similarity: Similarity, sure: Callable[[Pair], bool], possible: Callable[[Pair], bool]
) -> EmbeddingResult:
    """Return the figures where ``sure`` pairs are hits, and ``possible`` ones above the threshold are."""
    threshold = max(similarity(pair) for pair in contrasts()[0::2] if possible(pair))

    def hits(pairs: Sequence[Pair]) -> int:
        return sum(sure(pair) or (possible(pair) and similarity(pair) > threshold) for pair in pairs)

    alike, unlike = paraphrases()[1::2], contrasts()[1::2]
    return EmbeddingResult(threshold, hits(alike), len(alike), hits(unlike), len(unlike))


def _one_has_more(pair: Pair) -> bool:
    one, other = meaning(pair.one), meaning(pair.other)
    only_one, only_other = one.missing(other)
    return one.kind == other.kind and bool(only_one) is not bool(only_other)
