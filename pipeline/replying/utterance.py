"""What a caller gets of one answer of a language model: its words without its thoughts, and not too many."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TypeVar

from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.interfaces import ToolCall
from rejoinder.pipeline.replying.thoughts import Thoughts

log = logging.getLogger(__name__)

Piece = TypeVar("Piece", str, str | ToolCall)

WHO = "language model"
"""What the errors in here call it."""
MAX_TOKENS = 400
"""An answer longer than this is not a spoken one."""
MAX_THOUGHT = 2_000
"""Tokens that a model may think beside its answer: at 100 a second, 20 s of silence on the line."""
TOKEN_CHARACTERS = 8
"""More than a token has at the mean in any language. A limit of tokens is one of characters, too, for servers
that send several tokens in one piece, or all of them."""


class Utterance:
    """One answer, piece by piece. A piece counts as a token.

    most: tokens that it may have, 0 for ``MAX_TOKENS``, which none exceeds: neither in pieces, nor with
        ``TOKEN_CHARACTERS`` for each. Thoughts have a limit of their own, ``MAX_THOUGHT``.
    tokens: pieces with words for the caller. hidden: pieces without, of a thought as a rule.
    shortened: whether there would have been more.
    """

    def __init__(self, most: int = 0) -> None:
        self.most = min(most or MAX_TOKENS, MAX_TOKENS)
        self.tokens = 0
        self.hidden = 0
        self.shortened = False
        self._room = MAX_TOKENS * TOKEN_CHARACTERS
        self._thought = 0
        self._thoughts = Thoughts()

    @property
    def unopened(self) -> bool:
        """Tell whether a thought was taken for words, because nothing said where it began."""
        return self._thoughts.unopened

    def take(self, piece: str) -> str:
        """Take what the model says next; return the words in it, "" for none and where it is ``shortened``.

        Raises ModelError where it thinks for too long.
        """
        words = self._thoughts.feed(piece)
        if not words:
            self.hidden += 1
            self._thought += len(piece)
            if self.hidden > MAX_THOUGHT or self._thought > MAX_THOUGHT * TOKEN_CHARACTERS:
                raise ModelError(WHO, f"no answer within {MAX_THOUGHT} tokens: let the model think less")
            return ""
        if self.tokens == self.most:
            self.shortened = True
            return ""
        self.tokens += 1
        return self._fitting(words)

    def end(self, called: bool = False) -> str:
        """Take the end of the answer; return what was held back. called: whether it calls a tool.

        Raises ModelError where all that the model said was the beginning of a thought.
        """
        if self._thoughts.open and not called:
            if not self.tokens:
                raise ModelError(WHO, "the answer ended before the model had done thinking")
            self.shortened = True
        return self._fitting(self._thoughts.flush())

    def _fitting(self, words: str) -> str:
        if len(words) > self._room:
            self.shortened = True
            words = words[: self._room]
            words = words[: words.rfind(" ") + 1] or words
        self._room -= len(words)
        return words


async def uttered(pieces: AsyncGenerator[Piece, None], utterance: Utterance) -> AsyncGenerator[Piece, None]:
    """Yield the words in a model's pieces, and its calls of tools, until the utterance has reached its end.

    Closing this closes the pieces. Raises ModelError as ``Utterance`` does.
    """
    called = warned = False
    async with aclosing(pieces):
        async for piece in pieces:
            if isinstance(piece, ToolCall):
                called = True
                yield piece
                continue
            words = utterance.take(piece)
            if utterance.unopened and not warned:
                warned = True
                log.warning(
                    "the language model's thoughts were taken for its answer, as they have an end and no "
                    "beginning: let the chat server take them out, by its reasoning parser"
                )
            if words:
                yield words
            if utterance.shortened:
                return
    if rest := utterance.end(called):
        yield rest
