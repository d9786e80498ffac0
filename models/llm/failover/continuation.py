"""Builds the prompt with which a second model goes on where a first one stopped."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

from rejoinder.pipeline.context.tokens import REPLY_SHARE, REPLY_TOKENS, estimated
from rejoinder.pipeline.interfaces import Message, Tools
from rejoinder.pipeline.words import NO_BLANKS

GO_ON = (
    "(Your message above broke off. Write only its rest: begin with the very next word, in the same language "
    "and tone. Repeat nothing, and do not mention the break.)"
)
"""Asks a model without assistant prefill for the rest of its message."""
_GOES_ON = frozenset(",;:-–—(/،、；：")
"""Signs after which a sentence goes on."""


def is_whole(text: str) -> bool:
    """Return whether a text may end here: it does not end with a word or a comma.

    In scripts without blanks the last sign says nothing, so such a text counts as whole.
    """
    last = text.rstrip()[-1:]
    return not (last.isalnum() or last in _GOES_ON) or re.match(f"[{NO_BLANKS}]", last) is not None


def continued(messages: Sequence[Message], given: str, prefills: bool, go_on: str = GO_ON) -> list[Message]:
    """Return the prompt for the rest of an answer of which ``given`` is out already.

    prefills: whether the model continues an assistant message at the end of its prompt. Blanks at the end of
    such a message are removed, because they would become tokens of their own. go_on: asks any other model.
    """
    rest: list[Message] = [Message(role="assistant", content=given.rstrip())]
    if not prefills:
        rest.append(Message(role="user", content=go_on))
    return [*messages, *rest]


def fitted(messages: Sequence[Message], context: int, tools: Tools | None) -> Sequence[Message]:
    """Return the messages that fit into a context: the first ones of the system, and the newest turns.

    A prompt is made for the model that usually answers. The one that takes over may have a smaller context.
    The last turn stays whole.
    """
    left = context - min(REPLY_TOKENS, context // REPLY_SHARE)
    left -= sum(estimated(json.dumps(one)) for one in tools.functions) if tools else 0
    sizes = [estimated(json.dumps(message, ensure_ascii=False)) for message in messages]
    if sum(sizes) <= left:
        return messages
    heads = next((at for at, one in enumerate(messages) if one["role"] != "system"), len(messages))
    left -= sum(sizes[:heads])
    turns = [at for at, one in enumerate(messages) if one["role"] == "user" and at >= heads]
    start = next((at for at in turns if sum(sizes[at:]) <= left), turns[-1] if turns else heads)
    return [*messages[:heads], *messages[start:]]
