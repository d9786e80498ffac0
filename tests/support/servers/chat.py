"""A chat server on loopback that answers as a test tells it to."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def token(text: str | None, finish: str | None = None) -> bytes:
    return _chunk({"content": text}, finish)


def call_piece(name: str | None, arguments: str) -> bytes:
    """Return a piece of a tool call; its first one has the name."""
    function = {"arguments": arguments, **({"name": name} if name else {})}
    call = {"index": 0, "type": "function", "function": function, **({"id": "1"} if name else {})}
    return _chunk({"tool_calls": [call]}, None)


def _chunk(delta: dict[str, Any], finish: str | None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {"id": "x", "object": "chat.completion.chunk", "created": 0, "model": "m", "choices": [choice]}
    return f"data: {json.dumps(chunk)}\n\n".encode()


@contextmanager
def chat_server(
    port: int,
    answer: Callable[[BaseHTTPRequestHandler, list[dict[str, str]]], None],
    refuse: Callable[[], tuple[int, str, bytes] | None] = lambda: None,
) -> Iterator[None]:
    """Serve ``POST /v1/chat/completions``: ``answer`` writes the body of an event stream.

    refuse: returns the status, the type and the body of a refusal, None for none.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            code, kind, refusal = refuse() or (200, "text/event-stream", b"")
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.end_headers()
            if refusal:
                self.wfile.write(refusal)
            else:
                answer(self, body["messages"])

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", port), Handler) as http:
        http.daemon_threads = True
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        try:
            yield
        finally:
            http.shutdown()
            thread.join()
