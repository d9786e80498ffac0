"""A chat server that calls tools, and a tool to call."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from typing import Any

from support.servers.chat import token

WEATHER: Any = {
    "type": "function",
    "name": "weather",
    "description": "Tells the weather.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def calls(*pieces: dict[str, Any]) -> bytes:
    """Stream calls as OpenAI does: a chunk with the name, and then the arguments bit by bit."""
    said = b""
    for piece in pieces:
        choice = {"index": 0, "delta": {"tool_calls": [piece]}, "finish_reason": None}
        chunk = {
            "id": "x",
            "object": "chat.completion.chunk",
            "created": 0,
            "model": "m",
            "choices": [choice],
        }
        said += f"data: {json.dumps(chunk)}\n\n".encode()
    return said + token(None, "tool_calls") + b"data: [DONE]\n\n"


class ChatServer:
    """Calls the weather where it may and has not, and otherwise says what the weather is."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []

    def answer(self, handler: BaseHTTPRequestHandler, messages: list[dict[str, Any]]) -> None:
        results = [message["content"] for message in messages if message["role"] == "tool"]
        last = messages[-1]["content"]
        if "weather" in last.lower() and not results:
            function = {"name": "weather", "arguments": ""}
            handler.wfile.write(
                calls(
                    {"index": 0, "id": "call_rome", "type": "function", "function": function},
                    {"index": 0, "function": {"arguments": '{"city": '}},
                    {"index": 0, "function": {"arguments": '"Rome"}'}},
                )
            )
            return
        self.bodies.append({"messages": messages})
        text = f"The weather is {results[-1]}." if results else "Hello."
        handler.wfile.write(token(text) + token(None, "stop") + b"data: [DONE]\n\n")
