"""Handshakes of which something is wrong, and a server's connection without sockets."""

from __future__ import annotations

import asyncio
import re
import socket
from typing import Any

import uvicorn
from uvicorn.server import ServerState
from websockets.http11 import MAX_LINE_LENGTH, MAX_NUM_HEADERS

from rejoinder.agent.server.connection import SocketConnection
from rejoinder.agent.server.request_head import HEAD_BYTES
from rejoinder.agent.server.requests import BODY_SECONDS, HttpConnection
from rejoinder.agent.settings.operating import HANDSHAKE_SECONDS
from rejoinder.agent.simulate.virtual_clock import run

LONG_ENOUGH = 2 * (BODY_SECONDS + HANDSHAKE_SECONDS)

HEAD = (
    b"GET /v1/realtime HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n"
)

PLAIN = b"POST /v1/realtime HTTP/1.1\r\nHost: localhost\r\n"

ODD = {
    "a cookie that is too large": (b"Cookie: " + b"x" * 9000 + b"\r\n", 431),
    "cookies that are just right": (b"Cookie: " + b"x" * (MAX_LINE_LENGTH - 10) + b"\r\n", 101),
    "too many headers": (b"X: 1\r\n" * (MAX_NUM_HEADERS + 1), 431),
    "a head that is too large": ((b"X: " + b"x" * (HEAD_BYTES // 4) + b"\r\n") * 4, 431),
    "a control character": (b"X: \x1b[31m\r\n", 400),
    "a body": (b"Content-Length: 5\r\n", 400),
    "an empty body": (b"Content-Length: 0\r\n", 101),
    "a body in chunks": (b"Transfer-Encoding: chunked\r\n", 400),
    "a body in two ways": (b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", 400),
    "another coding": (b"Transfer-Encoding: gzip\r\n", 400),
    "two hosts": (b"Host: b\r\n", 400),
    "two keys": (b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n", 400),
    "a header that goes on": (b"X: 1\r\n 2\r\n", 101),
    "no colon": (b"X\r\n", 400),
    "bytes that are no ASCII": (b"X: \xff\xe9\r\n", 101),
}


class Application:
    """What is behind the protocols: it answers plain requests, and handshakes in one of five ways."""

    def __init__(self, manner: str) -> None:
        self.manner = manner

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            await send({"type": "http.response.start", "status": 426, "headers": [(b"content-length", b"0")]})
            await send({"type": "http.response.body", "body": b""})
            return
        assert (await receive())["type"] == "websocket.connect"
        match self.manner:
            case "accepts":
                await send({"type": "websocket.accept"})
            case "denies":
                await send({"type": "websocket.http.response.start", "status": 403, "headers": []})
                await send({"type": "websocket.http.response.body", "body": b"no"})
            case "fails":
                raise RuntimeError("a scripted failure")
            case "returns":
                return
        while (await receive())["type"] != "websocket.disconnect":
            pass


class Line:
    """A connection to the server's protocols: what they answered, and whether they ended it."""

    def __init__(self, manner: str) -> None:
        app = Application(manner)
        self._config = uvicorn.Config(
            app,
            http=HttpConnection,
            ws=SocketConnection,
            ws_ping_interval=None,
            log_config=None,
            access_log=False,
        )
        self._config.load()
        self.state = ServerState()
        self.said = b""
        self.closed = False

    async def hold(self, pieces: list[bytes]) -> None:
        """Send the pieces one after the other, and wait until nothing can happen any more."""
        client, server = socket.socketpair()
        with client:
            client.setblocking(False)
            await asyncio.get_running_loop().connect_accepted_socket(self._protocol, server)
            for piece in pieces:
                self._send(client, piece)
                await asyncio.sleep(0.001)
                self._read(client)
            await asyncio.sleep(LONG_ENOUGH)
            self._read(client)
        await asyncio.sleep(LONG_ENOUGH)
        assert not self.state.connections and not self.state.tasks, "left behind"

    def _protocol(self) -> HttpConnection:
        return HttpConnection(self._config, self.state, {})

    def _send(self, client: socket.socket, piece: bytes) -> None:
        try:
            client.send(piece)
        except OSError:  # the server has closed, or reads no more
            pass

    def _read(self, client: socket.socket) -> None:
        try:
            while data := client.recv(2**16):
                self.said += data
            self.closed = True
        except BlockingIOError:
            pass
        except ConnectionResetError:
            self.closed = True


def handshake(pieces: list[bytes], manner: str = "accepts") -> Line:
    """Send this to the server's protocols; fails unless it is answered, upgraded, or dropped in time."""
    line = Line(manner)
    run(line.hold(pieces), debug=False)
    assert not line.said or re.match(rb"HTTP/1\.1 \d{3} [A-Z]", line.said), line.said
    upgraded = b"HTTP/1.1 101 " in line.said
    assert line.closed or upgraded, "it hangs"
    if re.search(rb"\n\r?\n", b"".join(pieces)) and manner != "never answers":
        assert line.said, "a whole head is answered"
    return line
