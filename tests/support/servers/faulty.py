"""A chat server whose faults are real: it is killed, hangs, speaks nonsense, refuses, crawls."""

import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from support.servers.chat import call_piece, token

from rejoinder.models.llm.failover.continuation import GO_ON

WORDS = "It is so. And that is the rest of it."
"""The answer of a healthy server."""
HUNG_SECONDS = 60.0
SLOW_SECONDS = 1.6
"""Between two tokens of a slow server."""
LATER_AT = 5
"""Words before a fault in mid-sentence."""


class Faulty:
    """The state of one server. Set ``fault`` at any time; it holds for the requests from then on.

    seen: the last message of each request. gone: requests whose client closed the connection.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.fault = ""
        self.seen: list[list[dict[str, Any]]] = []
        self.gone = 0
        self.released = threading.Event()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def answer(self, handler: BaseHTTPRequestHandler, body: dict[str, Any]) -> None:
        self.seen.append(body["messages"])
        fault, write = self.fault, handler.wfile.write
        goes_on = body["messages"][-1]["content"] == GO_ON
        words = WORDS.removeprefix(body["messages"][-2]["content"]) if goes_on else WORDS
        if fault in ("429", "500"):
            return self._refuse(handler, int(fault))
        if fault == "killed":
            return self._reset(handler)
        if fault == "hung":
            return self._hang(handler)
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.end_headers()
        if fault == "garbage":
            write(b'\x00\xff{]}data: nonsense\n\ndata: {"choices": 3}\n\n')
            return None
        if fault == "endless call":
            return self._call_endlessly(handler)
        pieces = [] if fault == "empty" else [word + " " for word in words.split()]
        for number, piece in enumerate(pieces):
            if fault == "hung in mid-sentence" and number == LATER_AT:
                return self._hang(handler)
            if fault == "killed in mid-sentence" and number == LATER_AT:
                return self._reset(handler)
            dribbles = fault == "dribbling" and number > 0
            slow = fault == "slow" or dribbles or (fault == "slow in mid-sentence" and number >= LATER_AT)
            time.sleep(SLOW_SECONDS if slow else 0.01)
            write(token(piece))
            handler.wfile.flush()
        write(token(None, "stop") + b"data: [DONE]\n\n")
        return None

    def _call_endlessly(self, handler: BaseHTTPRequestHandler) -> None:
        end = time.monotonic() + HUNG_SECONDS
        handler.wfile.write(call_piece("book", ""))
        while time.monotonic() < end and not self.released.is_set():
            handler.wfile.write(call_piece(None, " "))
            time.sleep(0.05)

    def _refuse(self, handler: BaseHTTPRequestHandler, code: int) -> None:
        handler.send_response(code)
        handler.send_header("Content-Type", "application/json")
        handler.end_headers()
        handler.wfile.write(json.dumps({"error": {"message": "no"}}).encode())

    def _hang(self, handler: BaseHTTPRequestHandler) -> None:
        handler.connection.settimeout(0.05)
        end = time.monotonic() + HUNG_SECONDS
        while time.monotonic() < end and not self.released.is_set():
            with suppress(TimeoutError):
                if not handler.connection.recv(1):
                    break
        self.gone += 1

    def _reset(self, handler: BaseHTTPRequestHandler) -> None:
        handler.connection.shutdown(socket.SHUT_RDWR)


@contextmanager
def faulty_server(port: int) -> Iterator[Faulty]:
    """Serve chat completions on loopback."""
    state = Faulty(port)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with suppress(OSError):
                state.answer(self, body)

        def log_message(self, *_: object) -> None:
            pass

    class Listener(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            pass

    with Listener(("127.0.0.1", port), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, args=(0.05,))
        thread.start()
        try:
            yield state
        finally:
            state.released.set()
            http.shutdown()
            thread.join()
