"""Builds the prompt with which a second model goes on where a first one stopped."""

from __future__ import annotations

from collections.abc import Sequence

from rejoinder.pipeline.context.tokens import ENTRY_TOKENS, REPLY_SHARE, REPLY_TOKENS
from rejoinder.pipeline.interfaces import ContextLlm, Llm, Message

GO_ON = (
    "(Your message above broke off. Write only its rest: begin with the very next word, in the same language "
    "and tone. Repeat nothing, and do not mention the break.)"
)
"""Asks a model without assistant prefill for the rest of its message."""


def continued(messages: Sequence[Message], given: str, prefills: bool, go_on: str = GO_ON) -> list[Message]:
    """Return the prompt for the rest of an answer of which ``given`` is out already.

    prefills: whether the model continues an assistant message at the end of its prompt. Blanks at the end of
    such a message are removed, because they would become tokens of their own. go_on: asks any other model.
    """
    rest: list[Message] = [Message(role="assistant", content=given.rstrip())]
    if not prefills:
        rest.append(Message(role="user", content=go_on))
    return [*messages, *rest]


def fitted(messages: Sequence[Message], llm: Llm) -> Sequence[Message]:
    """Return the messages that fit into a model's context: the first ones of the system, and the newest.

    A prompt is made for the conversation's model. The one that takes over may have a smaller context.
    """
    if not isinstance(llm, ContextLlm):
        return messages
    left = llm.context_tokens - min(REPLY_TOKENS, llm.context_tokens // REPLY_SHARE)
    sizes = [llm.tokens_in(message["content"][:4_000]) + ENTRY_TOKENS for message in messages]
    if sum(sizes) <= left:
        return messages
    heads = next((at for at, one in enumerate(messages) if one["role"] != "system"), len(messages))
    left -= sum(sizes[:heads])
    start = len(messages)
    while start > heads and (sizes[start - 1] <= left or start == len(messages)):
        start -= 1
        left -= sizes[start]
    while start < len(messages) - 1 and messages[start]["role"] not in ("user", "system"):
        start += 1  # an answer without its question, or a tool's result without its call
    return [*messages[:heads], *messages[start:]]
