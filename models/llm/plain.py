"""Messages for chat templates, without control tokens, so that only the template delimits messages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from rejoinder.pipeline.interfaces import Message


class PlainMessages:
    """Removes control tokens from what people, tools and clients say. control: these tokens as text."""

    def __init__(self, control: Iterable[str]) -> None:
        self._control = re.compile("|".join(map(re.escape, control)) or "(?!)")

    def message(self, message: Message) -> dict[str, Any]:
        """Return a message for a chat template, with the arguments of calls as objects.

        Raises UnicodeEncodeError for a lone surrogate.
        """
        plain: dict[str, Any] = {**message, "content": self.clean(message["content"])}
        if "tool_calls" in message:
            plain["tool_calls"] = [
                {
                    **call,
                    "function": {
                        **call["function"],
                        "name": self.clean(call["function"]["name"]),
                        "arguments": self._arguments(call["function"]),
                    },
                }
                for call in message["tool_calls"]
            ]
        return plain

    def clean(self, value: Any) -> Any:
        """Return a JSON value without control tokens. Raises UnicodeEncodeError for a lone surrogate."""
        if isinstance(value, str):
            value.encode()
            return self._control.sub(" ", value)
        if isinstance(value, dict):
            return {self.clean(key): self.clean(one) for key, one in value.items()}
        return [self.clean(one) for one in value] if isinstance(value, list) else value

    def _arguments(self, function: dict[str, str]) -> Any:
        """Return the arguments of a call as an object, as templates expect; {} if they are not one."""
        try:
            given = json.loads(function["arguments"])
        except ValueError:  # a client may add an invalid call to a conversation, which must go on
            given = None
        return self.clean(given) if isinstance(given, dict) else {}
