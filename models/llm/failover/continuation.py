"""Builds the prompt with which a second model goes on where a first one stopped."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rejoinder.pipeline.interfaces import Message
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
