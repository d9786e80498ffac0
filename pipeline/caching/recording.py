"""Records the answer of one reply as it is sent, for a cache."""

from __future__ import annotations

from dataclasses import dataclass, field

from rejoinder.pipeline.audio.chunk import AudioChunk, Words
from rejoinder.pipeline.caching.answers import CachedAnswer

MAX_ANSWER_S = 60.0
"""Longest answer that is kept, in seconds of speech."""


@dataclass(slots=True)
class _RecordedClause:
    text: str
    rate: int
    pcm: bytearray = field(default_factory=bytearray)
    words: Words = ()


class AnswerRecording:
    """The audio of one answer, clause by clause, up to ``MAX_ANSWER_S``."""

    def __init__(self) -> None:
        self._clauses: list[_RecordedClause] = []
        self._seconds = 0.0

    def add(self, text: str, chunk: AudioChunk, words: Words) -> None:
        """Add audio that was sent.

        text: the clause that begins with it, or "". words: the times of the clause's words, as far as known.
        """
        self._seconds += chunk.seconds
        if self._seconds > MAX_ANSWER_S:
            self._clauses.clear()
            return
        if text or not self._clauses:
            self._clauses.append(_RecordedClause(text, chunk.rate))
        self._clauses[-1].pcm += chunk.pcm
        self._clauses[-1].words = words

    def answer(self) -> CachedAnswer | None:
        """Return the answer; None if there was none, or it was too long."""
        if not self._clauses or self._seconds > MAX_ANSWER_S:
            return None
        return CachedAnswer(
            [
                (clause.text, AudioChunk(bytes(clause.pcm), clause.rate, words=clause.words))
                for clause in self._clauses
            ]
        )
