"""A chat server that says a sentence and calls one tool in the same answer, and then tells the result."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from typing import Any

from support.servers.chat import token
from support.servers.tools import calls

WORDS = "I am putting you through to our sales team now."
"""What it says while it calls the tool. The simulated voice takes two seconds for it."""


class Operator:
    """Calls one tool, once. results: what came back, as the prompts show it."""

    def __init__(self, name: str, **arguments: Any) -> None:
        self.name = name
        self.arguments = json.dumps(arguments)
        self.results: list[str] = []
        self.prompts: list[list[dict[str, Any]]] = []

    def answer(self, handler: BaseHTTPRequestHandler, messages: list[dict[str, Any]]) -> None:
        if messages[-1]["content"] != "Say yes.":  # the server asks that once, at its start
            self.prompts.append(messages)
        self.results = [message["content"] for message in messages if message["role"] == "tool"]
        if self.results:
            said = token(f"Told: {self.results[-1]}") + token(None, "stop") + b"data: [DONE]\n\n"
        else:
            function = {"name": self.name, "arguments": self.arguments}
            call = {"index": 0, "id": "call_1", "type": "function", "function": function}
            said = token(WORDS) + calls(call)
        handler.wfile.write(said)
