"""Decides how long the next chunk of a chat server's answer is awaited."""

from __future__ import annotations

import math

from rejoinder.pipeline.errors import ModelError

STREAM_END_SECONDS = 0.25
"""Longest wait for the end of the stream after the last token. A stream read to its end leaves the connection
reusable."""


class StreamDeadlines:
    """The deadlines of one answer. Times are ``loop.time()``, in seconds.

    first_s: from the request to the first token. between_s: between two tokens. call_s: from the first piece
    of a tool call to the end of the answer, because no caller hears anything meanwhile. now: the begin of the
    request. finished: whether the answer is complete.
    """

    def __init__(self, first_s: float, between_s: float, call_s: float, now: float) -> None:
        self.finished = False
        self._first_s, self._between_s, self._call_s = first_s, between_s, call_s
        self._due = now + first_s
        self._started = False
        self._call_due = math.inf

    def due(self, now: float) -> float:
        """Return the time at which the next chunk is late."""
        if self.finished:
            return now + STREAM_END_SECONDS
        if self._started:
            self._due = min(now + self._between_s, self._call_due)
        return self._due

    def chunk(self, works: bool, calls: bool, finished: bool, now: float) -> None:
        """Record a chunk. works: whether it shows that the model works. calls: it has a piece of a call."""
        self.finished = self.finished or finished
        self._started = self._started or works or finished
        if calls and self._call_due == math.inf:
            self._call_due = now + self._call_s

    def error(self, name: str) -> ModelError:
        """Return the error of an answer that is late. name: of the model."""
        if self._started and self._due == self._call_due:
            reason = f"a tool call takes longer than {self._call_s:g} s"
        else:
            reason = f"no token for {self._between_s if self._started else self._first_s:g} s"
        return ModelError(name, reason, "model_timeout")
