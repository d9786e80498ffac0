"""What a cache of answers is asked, and what it keeps."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rejoinder.pipeline.audio.chunk import AudioChunk


@dataclass(frozen=True, slots=True)
class CacheQuestion:
    """The user's first words of a call, and everything else that their answer depends on.

    scope: a hash of the models, the instructions, the examples, the greeting and the limits of the answer.
    recogniser: the spec of the speech recogniser, which says the language; "" if unknown.
    """

    words: str
    scope: str
    recogniser: str = ""


@dataclass(frozen=True, slots=True)
class CachedAnswer:
    """An answer that was heard to its end.

    clauses: its clauses in order: ``text``, and the audio with the times of its words.
    exact: whether it was found by the same words; False if by words of the same meaning.
    """

    clauses: Sequence[tuple[str, AudioChunk]]
    exact: bool = True


class AnswerCache(Protocol):
    """The cached answers that one session may use; it knows whose they are."""

    async def find(self, question: CacheQuestion) -> CachedAnswer | None:
        """Return the answer to a question, None for a miss. It raises nothing and returns within moments.

        It runs on partial transcripts. Cancelling changes nothing.
        """
        ...

    def keep(self, question: CacheQuestion, answer: CachedAnswer) -> None:
        """Take an answer to keep, or drop it if the cache is busy. It does not wait."""
        ...


def scope_of(models: Mapping[str, str], opening: Sequence[Mapping[str, Any]], limits: Sequence[float]) -> str:
    """Return the scope of a question.

    models: the spec of each model by role. opening: the messages of the prompt before the user's first words.
    limits: the limits of the answer's length.
    """
    whole = json.dumps([dict(models), list(opening), list(limits)], sort_keys=True)
    return hashlib.sha256(whole.encode()).hexdigest()
