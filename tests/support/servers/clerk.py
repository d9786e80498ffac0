"""A chat server that books a table: it calls ``book`` when it is asked for one, and then tells the result."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from typing import Any

from support.servers.chat import token
from support.servers.tools import calls

WANTED = "a table for four tomorrow at seven, my name is Anna"
"""What a caller says."""
AT = "2026-11-24T19:00:00"


class Clerk:
    """Answers what the prompt shows last. A call has a new id each time."""

    def __init__(self) -> None:
        self.asked = 0
        self.prompts: list[list[dict[str, Any]]] = []

    def answer(self, handler: BaseHTTPRequestHandler, messages: list[dict[str, Any]]) -> None:
        self.prompts.append(messages)
        last = messages[-1]
        if last["role"] == "tool":
            said = token(f"Done: {last['content']}") + token(None, "stop") + b"data: [DONE]\n\n"
        elif "table" in last["content"].lower():
            self.asked += 1
            arguments = json.dumps({"people": 4, "at": AT, "name": "Anna"})
            function = {"name": "book", "arguments": arguments}
            said = calls({"index": 0, "id": f"call_{self.asked}", "type": "function", "function": function})
        else:
            said = token("For how many?") + token(None, "stop") + b"data: [DONE]\n\n"
        handler.wfile.write(said)
