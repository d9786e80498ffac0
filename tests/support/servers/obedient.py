"""A chat server that calls the tool that the user names, and says what came out."""

from __future__ import annotations

from http.server import BaseHTTPRequestHandler
from typing import Any

from support.servers.chat import token
from support.servers.tools import calls


class Obedient:
    """Answers ``call NAME {...}`` with that call, and anything behind a result with the result.

    offered: the messages of each request.
    """

    def __init__(self) -> None:
        self.asked: list[list[dict[str, Any]]] = []

    def answer(self, handler: BaseHTTPRequestHandler, messages: list[dict[str, Any]]) -> None:
        self.asked.append(messages)
        last = messages[-1]
        if last["role"] == "user" and last["content"].startswith("call "):
            _, name, arguments = last["content"].split(" ", 2)
            function = {"name": name, "arguments": arguments}
            id_ = f"call_{len(self.asked)}"
            handler.wfile.write(calls({"index": 0, "id": id_, "type": "function", "function": function}))
            return
        said = f"It says: {last['content']}." if last["role"] == "tool" else "Hello."
        handler.wfile.write(token(said) + token(None, "stop") + b"data: [DONE]\n\n")
