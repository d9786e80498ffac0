"""Counts tokens without asking the model for each prompt, and says how many the conversation may have."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING

from rejoinder.pipeline.interfaces import ContextLlm, Llm

if TYPE_CHECKING:
    from rejoinder.pipeline.options import Options

BYTES_PER_TOKEN = 3
"""Bytes of UTF-8 per token where the model cannot count, on the safe side.

English has 4 to 5, other languages in Latin letters 3 to 4. Chinese and Japanese have about one token per
character, which is three bytes.
"""
ENTRY_TOKENS = 6
"""Tokens that a chat template adds to a message."""
SAMPLE_CHARACTERS = 1_000
"""Longest text that the model's tokenizer counts on the event loop; a longer one is scaled from its start."""
CONTEXT_TOKENS = 8_192
"""The context of a model that does not state its own, with the answer, in tokens."""
CONVERSATION_TOKENS = 8_000
"""Most tokens of a conversation in a prompt that are used by default, however large the model's context is.

At the speed of speech that is about 50 minutes. More costs time and money in each turn.
"""
REPLY_SHARE = 4
"""This fraction of the context stays free for the answer, but at most ``REPLY_TOKENS``."""
REPLY_TOKENS = 400
"""Most tokens that stay free for the answer."""
WORDS_SHARE = 16
"""This fraction of the context stays free for the words of the turn, which are not in the history yet."""
KNOWLEDGE_TOKENS = 700
"""Tokens that retrieved knowledge may have: it is cut at 2,000 characters."""
LEAST_SHARE = 8
"""At least this fraction of the context is for the conversation, however long the instructions are."""
LEAST_TOKENS = 128
"""Least tokens of a conversation, whatever limit is set: with fewer, no turn is whole."""

Counter = Callable[[str], int]
"""Returns the number of tokens in a text."""


def estimated(text: str) -> int:
    """Return about how many tokens a text has, rather too many than too few."""
    return -(-len(text.encode(errors="replace")) // BYTES_PER_TOKEN)


class TokenBudget:
    """The tokens of one session's prompts.

    context: tokens of a prompt and its answer together.
    """

    def __init__(self, llm: Llm | None = None) -> None:
        known = llm if isinstance(llm, ContextLlm) else None
        self._count: Counter = known.tokens_in if known else estimated
        self.context = known.context_tokens if known else CONTEXT_TOKENS

    def count(self, text: str) -> int:
        """Return the number of tokens in a text. It takes less than a millisecond, whatever the text."""
        start = text[:SAMPLE_CHARACTERS]
        try:
            tokens = self._count(start)
        except Exception:  # such as for a lone surrogate: the reply reports it, the history keeps the words
            tokens = estimated(start)
        return tokens if len(start) == len(text) else -(-tokens * len(text) // len(start))

    def conversation(self, options: Options) -> int:
        """Return the most tokens of the conversation in one prompt.

        It is what the context leaves after the instructions, the examples, the tools, retrieved knowledge and
        the answer, and at most ``Options.prompt_tokens``.
        """
        fixed = self.count(options.instructions) + ENTRY_TOKENS
        fixed += sum(self.count(one["content"]) + ENTRY_TOKENS for one in options.shown_examples)
        fixed += sum(estimated(json.dumps(one)) for one in options.tools.functions)
        fixed += KNOWLEDGE_TOKENS if options.context else 0
        fixed += min(REPLY_TOKENS, self.context // REPLY_SHARE) + self.context // WORDS_SHARE
        most = max(LEAST_TOKENS, options.prompt_tokens or CONVERSATION_TOKENS)
        return min(most, max(self.context - fixed, self.context // LEAST_SHARE))


def shortened(text: str, tokens: int, count: Counter = estimated) -> str:
    """Return a text of at most about this number of tokens: its start, its end, and a note in between."""
    if (has := count(text)) <= tokens:
        return text
    most = len(text) * max(0, tokens - count(SHORTENED) - 1) // has
    head = most * 3 // 4
    return text[:head].rstrip() + SHORTENED + text[len(text) - (most - head) :].lstrip()


SHORTENED = " (… shortened …) "
"""Stands for what ``shortened`` leaves out."""
