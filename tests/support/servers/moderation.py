"""A moderation server on loopback, in OpenAI's format. It flags texts about poison.

https://platform.openai.com/docs/api-reference/moderations/object
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CATEGORIES = ("harassment", "hate", "illicit", "self-harm", "sexual", "violence", "violence/graphic")
Answer = Callable[[BaseHTTPRequestHandler], tuple[int, bytes]]


@dataclass
class ModerationServer:
    """url: for the client, with ``/v1``. asked: the requests. keys: their Authorization headers."""

    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)


def flags(text: str) -> bytes:
    """Return the answer about a text."""
    flagged = "poison" in text.lower()
    found = {name: flagged and name.startswith("violence") for name in CATEGORIES}
    scores = {name: 0.99 if hit else 0.0001 for name, hit in found.items()}
    result = {"flagged": flagged, "categories": found, "category_scores": scores}
    return json.dumps({"id": "modr-1", "model": "omni-moderation-latest", "results": [result]}).encode()


@contextmanager
def moderation_server(answer: Answer | None = None, port: int = 0) -> Iterator[ModerationServer]:
    """Answer for the length of the block. answer: returns the status and the body in place of ``flags``."""
    kept, connections = ModerationServer(), list[socket.socket]()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            connections.append(self.connection)

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            kept.asked.append(asked)
            kept.keys.append(self.headers["Authorization"])
            there = self.path == "/v1/moderations"
            status, body = (
                (404, b"{}") if not there else answer(self) if answer else (200, flags(asked["input"]))
            )
            try:
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
            except OSError:  # the client has left
                self.close_connection = True

        def log_message(self, *arguments: Any) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    kept.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    try:
        yield kept
    finally:
        server.shutdown()
        thread.join()
        for connection in connections:
            with suppress(OSError):  # it is closed already
                connection.shutdown(socket.SHUT_RDWR)
        server.server_close()
