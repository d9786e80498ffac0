"""Filters one answer of a language model: it removes the thoughts and limits the length."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TypeVar

from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.interfaces import ToolCall
from rejoinder.pipeline.replying.text.thought_filter import ThoughtFilter

log = logging.getLogger(__name__)

Piece = TypeVar("Piece", str, str | ToolCall)

LLM_ROLE = "language model"
"""The adapter's name in the errors of this module."""
MAX_TOKENS = 400
"""Most tokens of an answer; a longer one is not suited to speech."""
MAX_THOUGHT_TOKENS = 2_000
"""Most tokens of thoughts in one answer: at 100 tokens a second, 20 s of silence on the line."""
TOKEN_CHARACTERS = 8
"""Characters per token, above the mean of any language. It turns the limits in tokens into limits in
characters, for servers that send several tokens in one piece."""


class AnswerFilter:
    """Takes one answer, piece by piece, and returns the words for the user. A piece counts as one token.

    max_tokens: most tokens of the answer; 0 for ``MAX_TOKENS``, which is also the upper limit. The characters
        are limited to ``MAX_TOKENS`` times ``TOKEN_CHARACTERS``. Thoughts have their own limit,
        ``MAX_THOUGHT_TOKENS``.
    tokens: pieces with words for the user. hidden: pieces without, mostly of thoughts.
    shortened: whether a limit cut the answer short.
    """

    def __init__(self, max_tokens: int = 0) -> None:
        self.max_tokens = min(max_tokens or MAX_TOKENS, MAX_TOKENS)
        self.tokens = 0
        self.hidden = 0
        self.shortened = False
        self._characters_left = MAX_TOKENS * TOKEN_CHARACTERS
        self._thought_characters = 0
        self._thoughts = ThoughtFilter()

    @property
    def unopened(self) -> bool:
        """Whether a thought was taken for words, because it had no opening tag."""
        return self._thoughts.unopened

    def take(self, piece: str) -> str:
        """Process the next piece; return its words for the user, "" for none or after ``shortened``.

        Raises ModelError if the thoughts exceed ``MAX_THOUGHT_TOKENS``.
        """
        words = self._thoughts.feed(piece)
        if not words:
            self.hidden += 1
            self._thought_characters += len(piece)
            characters = self._thought_characters
            if self.hidden > MAX_THOUGHT_TOKENS or characters > MAX_THOUGHT_TOKENS * TOKEN_CHARACTERS:
                advice = "reduce the model's reasoning effort"
                raise ModelError(LLM_ROLE, f"no answer within {MAX_THOUGHT_TOKENS} tokens: {advice}")
            return ""
        if self.tokens == self.max_tokens:
            self.shortened = True
            return ""
        self.tokens += 1
        return self._fit(words)

    def end(self, called: bool = False) -> str:
        """End the answer; return the words held back. called: whether it calls a tool.

        Raises ModelError if the answer has no words and ends inside a thought.
        """
        if self._thoughts.open and not called:
            if not self.tokens:
                message = "the answer ended inside the model's thoughts: raise its limit of tokens"
                raise ModelError(LLM_ROLE, message)
            self.shortened = True
        return self._fit(self._thoughts.flush())

    def _fit(self, words: str) -> str:
        if len(words) > self._characters_left:
            self.shortened = True
            words = words[: self._characters_left]
            words = words[: words.rfind(" ") + 1] or words
        self._characters_left -= len(words)
        return words


async def filtered(pieces: AsyncGenerator[Piece, None], answer: AnswerFilter) -> AsyncGenerator[Piece, None]:
    """Yield the words and the tool calls in a model's pieces, until the answer reaches a limit.

    Raises ModelError as ``AnswerFilter`` does. Closing the generator closes ``pieces``.
    """
    called = warned = False
    async with aclosing(pieces):
        async for piece in pieces:
            if isinstance(piece, ToolCall):
                called = True
                yield piece
                continue
            words = answer.take(piece)
            if answer.unopened and not warned:
                warned = True
                log.warning(
                    "the language model's thoughts were spoken, because they have a closing tag and no "
                    "opening tag: turn on the reasoning parser of the chat server"
                )
            if words:
                yield words
            if answer.shortened:
                return
    if rest := answer.end(called):
        yield rest
