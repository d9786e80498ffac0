"""One request to one model, until it has answered and while it does."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from typing import Any

from rejoinder.models.llm.failover.candidate import Candidate, Piece, Request
from rejoinder.models.llm.failover.seam import Seam, WholeWords
from rejoinder.pipeline.errors import ModelError, Overloaded
from rejoinder.pipeline.interfaces import ToolCall
from rejoinder.pipeline.replying.text.answer_filter import MAX_THOUGHT_TOKENS, TOKEN_CHARACTERS
from rejoinder.pipeline.replying.text.thought_filter import ThoughtFilter

log = logging.getLogger(__name__)

PREFILL_REPEATS = 3
"""Fewest words that count as repeated by a model that continues the text itself."""


class Leg:
    """A request to one model. It yields whole words, without thoughts and without what is out already.

    candidate: the model. ready: pieces that came before this leg was chosen.
    """

    def __init__(self, candidate: Candidate, request: Request) -> None:
        self.candidate = candidate
        self.ready: list[Piece] = []
        self._began = asyncio.get_running_loop().time()
        self._request = request
        self._stream: AsyncGenerator[Any, None] | None = None
        self._thoughts = ThoughtFilter()
        self._thought = 0
        self._said = self._called = self._over = False
        self._words = WholeWords()
        self._seam = Seam(request.given, PREFILL_REPEATS if candidate.prefills else 1)

    @property
    def waited(self) -> float:
        """Seconds since the request began."""
        return asyncio.get_running_loop().time() - self._began

    async def begin(self) -> None:
        """Wait for the first word, the first tool call, or the end of the answer. Raises ModelError.

        An adapter yields an empty piece once it reads the beginning of a call: that is an answer, too.
        Cancelling closes the request.
        """
        while not (self._said or self._called):
            if (pieces := await self.read()) is None:
                return
            self.ready += pieces

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
        self._said = self._said or bool(text.strip())
        if not text:
            self._thought += max(1, len(piece) // TOKEN_CHARACTERS)
            if self._thought > MAX_THOUGHT_TOKENS:
                raise ModelError(self.candidate.name, f"no answer within {MAX_THOUGHT_TOKENS} tokens")
        new = self._seam.feed(self._words.feed(text)) if text else ""
        return [new] if new else []

    def _end(self) -> list[Piece]:
        if self._thoughts.open and not self._said and not self._called:
            raise ModelError(self.candidate.name, "the answer ended inside the model's thoughts")
        last = self._words.feed(self._thoughts.flush()) + self._words.flush()
        new = (self._seam.feed(last) if last else "") + self._seam.flush()
        return [new] if new else []
