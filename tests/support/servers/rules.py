"""A chat server that answers by rules: what a caller says leads to words or to the call of a tool."""

from __future__ import annotations

import json
import re
from http.server import BaseHTTPRequestHandler
from typing import Any

from support.servers.chat import token
from support.servers.tools import calls

Answer = str | tuple[str, dict[str, Any]]
"""Words, or the name of a tool with its arguments."""


class Rules:
    """Answers the caller's last words by the first pattern that they have, and says what a tool returned."""

    def __init__(self, rules: dict[str, Answer]) -> None:
        self.prompts: list[list[dict[str, Any]]] = []
        self._rules = rules
        self._called = 0

    def answer(self, handler: BaseHTTPRequestHandler, messages: list[dict[str, Any]]) -> None:
        self.prompts.append(messages)
        handler.wfile.write(self._body(messages[-1]))

    def _body(self, last: dict[str, Any]) -> bytes:
        said = last["content"].lower()
        found = [answer for pattern, answer in self._rules.items() if re.search(pattern, said)]
        answer = f"Done: {last['content']}" if last["role"] == "tool" else found[0] if found else "Sorry?"
        if isinstance(answer, str):
            return token(answer) + token(None, "stop") + b"data: [DONE]\n\n"
        self._called += 1
        function = {"name": answer[0], "arguments": json.dumps(answer[1])}
        return calls({"index": 0, "id": f"call_{self._called}", "type": "function", "function": function})
