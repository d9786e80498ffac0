"""Filters one answer of a language model: it removes the thoughts and limits the length."""

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

ADAPTER = "language model"
"""The adapter's name in the errors of this module."""
MAX_TOKENS = 400
"""Most tokens of an answer; a longer one is not suited to speech."""
MAX_THOUGHT = 2_000
"""Most tokens of thoughts in one answer: at 100 tokens a second, 20 s of silence on the line."""
TOKEN_CHARACTERS = 8
"""Characters per token, above the mean of any language. It turns the limits in tokens into limits in
characters, for servers that send several tokens in one piece."""


class Utterance:
    """One answer, piece by piece. A piece counts as one token.

    most: most tokens of the answer; 0 for ``MAX_TOKENS``, which is also the upper limit. The characters are
        limited to ``MAX_TOKENS`` times ``TOKEN_CHARACTERS``. Thoughts have their own limit, ``MAX_THOUGHT``.
    tokens: pieces with words for the user. hidden: pieces without, mostly of thoughts.
    shortened: whether a limit cut the answer short.
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
        """Whether a thought was taken for words, because it had no opening tag."""
        return self._thoughts.unopened

    def take(self, piece: str) -> str:
        """Process the next piece; return its words for the user, "" for none or after ``shortened``.

        Raises ModelError if the thoughts exceed ``MAX_THOUGHT``.
        """
        words = self._thoughts.feed(piece)
        if not words:
            self.hidden += 1
            self._thought += len(piece)
            if self.hidden > MAX_THOUGHT or self._thought > MAX_THOUGHT * TOKEN_CHARACTERS:
                advice = "reduce the model's reasoning effort"
                raise ModelError(ADAPTER, f"no answer within {MAX_THOUGHT} tokens: {advice}")
            return ""
        if self.tokens == self.most:
            self.shortened = True
            return ""
        self.tokens += 1
        return self._fitting(words)

    def end(self, called: bool = False) -> str:
        """End the answer; return the words held back. called: whether it calls a tool.

        Raises ModelError if the answer has no words and ends inside a thought.
        """
        if self._thoughts.open and not called:
            if not self.tokens:
                message = "the answer ended inside the model's thoughts: raise its limit of tokens"
                raise ModelError(ADAPTER, message)
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
    """Yield the words and the tool calls in a model's pieces, until the utterance reaches a limit.

    Raises ModelError as ``Utterance`` does. Closing the generator closes ``pieces``.
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
                    "the language model's thoughts were spoken, because they have a closing tag and no "
                    "opening tag: turn on the reasoning parser of the chat server"
                )
            if words:
                yield words
            if utterance.shortened:
                return
    if rest := utterance.end(called):
        yield rest
