"""One request to one model, until it has answered and while it does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from typing import Any

from rejoinder.models.llm.failover.candidate import Candidate, Piece, Request
from rejoinder.models.llm.failover.seam import Seam, WholeWords
from rejoinder.pipeline.errors import ModelError, Overloaded
from rejoinder.pipeline.interfaces import ToolCall
from rejoinder.pipeline.prompt import EMPTY_ANSWER
from rejoinder.pipeline.replying.text.answer_filter import MAX_THOUGHT_TOKENS, TOKEN_CHARACTERS
from rejoinder.pipeline.replying.text.clauses import ClauseSplitter
from rejoinder.pipeline.replying.text.thought_filter import ThoughtFilter

log = logging.getLogger(__name__)

PREFILL_REPEATS = 3
"""Fewest words that count as repeated by a model that continues the text itself."""


class Leg:
    """A request to one model. It yields whole words, without thoughts and without what is out already.

    candidate: the model. ready: pieces that came before this leg was chosen. first_word: loop time of the
    first word, None before. on_word: is called then. is_empty: whether an answer without words was refused:
    the prompt may have asked for one.
    """

    def __init__(self, candidate: Candidate, request: Request, on_word: Callable[[], None]) -> None:
        self.candidate = candidate
        self.ready: list[Piece] = []
        self.first_word: float | None = None
        self.is_empty = False
        self._on_word = on_word
        self._began = asyncio.get_running_loop().time()
        self._request = request
        self._stream: AsyncGenerator[Any, None] | None = None
        self._thoughts = ThoughtFilter()
        self._thought = 0
        self._called = self._over = False
        # Behind words that are out, the splitter of the reply is in the middle of a clause.
        self._clause = ClauseSplitter() if request.spoken and not request.given else None
        self._has_clause = False
        self._words = WholeWords()
        self._seam = Seam(request.given, PREFILL_REPEATS if candidate.prefills else 1)

    def late_at(self, is_last: bool) -> float:
        """Return the loop time of the next deadline. is_last: whether no other model can take over."""
        if self.first_word is None:
            return self._began + self.candidate.deadline(is_last)
        return self.first_word + self.candidate.clause_deadline(is_last)

    def lateness(self) -> str:
        """Return what the model has not done, for errors and logs."""
        now = asyncio.get_running_loop().time()
        if self.first_word is None:
            return f"no word within {now - self._began:.1f} s"
        return f"no clause within {now - self.first_word:.1f} s of its first word"

    def measure(self) -> None:
        """Record how long the first word and the first clause took, or were waited for."""
        now = asyncio.get_running_loop().time()
        self.candidate.first_words.add((self.first_word or now) - self._began)
        if self._clause is not None and self.first_word is not None and not self._called:
            self.candidate.first_clauses.add(now - self.first_word)

    async def begin(self) -> None:
        """Wait for the first clause or word, the first tool call, or the end of the answer.

        A reply that is spoken needs a clause: words without one are not heard. An adapter yields an empty
        piece once it reads the beginning of a call: that is an answer, too. Raises ModelError, also if a
        reply that is spoken has no word. Cancelling closes the request.
        """
        while not self._answered:
            if (pieces := await self.read()) is None:
                if self._request.must_speak and not self._new:
                    self.is_empty = True
                    raise ModelError(self.candidate.name, EMPTY_ANSWER)
                return
            self.ready += pieces

    @property
    def _answered(self) -> bool:
        if self._request.given:  # it may begin with words that are out already
            return self._called or self._new
        has_words = self.first_word is not None if self._clause is None else self._has_clause
        return self._called or has_words

    @property
    def _new(self) -> bool:
        """Whether there are words that are not out already."""
        return any(isinstance(piece, str) and piece.strip() for piece in self.ready)

    async def read(self) -> list[Piece] | None:
        """Wait for the next pieces and return them, often none; None at the end. Raises ModelError.

        Cancelling closes the request.
        """
        if self._over:
            return None
        try:
            if self._stream is None:
                self._stream = self._request.send(self.candidate)
            return self._take(await anext(self._stream))
        except StopAsyncIteration:
            self._over = True
            return self._end()
        except (ModelError, Overloaded):
            raise
        except Exception as error:  # of an adapter of another distribution; the next model does not have it
            raise ModelError(self.candidate.name, f"{type(error).__name__}: {error}") from error

    async def aclose(self) -> None:
        """Close the request: the model stops. A model that fails to stop is logged.

        Cancelling may leave the request open.
        """
        if self._stream is None:
            return
        try:
            await self._stream.aclose()
        except Exception as error:  # the next model must not fail for it
            log.warning("%s failed when its request was closed: %r", self.candidate.name, error)

    def _take(self, piece: Piece) -> list[Piece]:
        if isinstance(piece, ToolCall):
            self._called = True
            words = self._seam.feed(self._words.feed(self._thoughts.flush()) + self._words.flush())
            return [words, piece] if words else [piece]
        self._called = self._called or not piece
        text = self._thoughts.feed(piece)
        if text.strip() and self.first_word is None:
            self.first_word = asyncio.get_running_loop().time()
            self._on_word()
        if not text:
            self._thought += max(1, len(piece) // TOKEN_CHARACTERS)
            if self._thought > MAX_THOUGHT_TOKENS:
                raise ModelError(self.candidate.name, f"no answer within {MAX_THOUGHT_TOKENS} tokens")
        new = self._seam.feed(self._words.feed(text)) if text else ""
        if self._clause is not None and not self._has_clause:
            self._has_clause = bool(self._clause.feed(new))
        return [new] if new else []

    def _end(self) -> list[Piece]:
        if self._thoughts.open and self.first_word is None and not self._called:
            raise ModelError(self.candidate.name, "the answer ended inside the model's thoughts")
        last = self._words.feed(self._thoughts.flush()) + self._words.flush()
        new = (self._seam.feed(last) if last else "") + self._seam.flush()
        return [new] if new else []
