"""Requests and handshakes of which anything is damaged: each is answered, upgraded, or dropped in time.

The server's protocol objects run on a real transport, in virtual time.
"""

from __future__ import annotations

import asyncio
import re
import socket
from itertools import pairwise
from typing import Any

import pytest
import uvicorn
from hypothesis import example, given, settings
from hypothesis import strategies as st
from uvicorn.server import ServerState
from websockets.http11 import MAX_LINE_LENGTH, MAX_NUM_HEADERS

from rejoinder.agent import request_head
from rejoinder.agent.connection import Connection
from rejoinder.agent.request_head import HEAD_BYTES
from rejoinder.agent.requests import BODY_SECONDS, REQUEST_SECONDS, Requests
from rejoinder.agent.virtual_clock import run

LONG_ENOUGH = 2 * (BODY_SECONDS + REQUEST_SECONDS)
APPLICATIONS = ("accepts", "denies", "fails", "returns", "never answers")
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
                raise RuntimeError("as it was told")
            case "returns":
                return
        while (await receive())["type"] != "websocket.disconnect":
            pass


class Line:
    """A connection to the server's protocols: what they answered, and whether they ended it."""

    def __init__(self, manner: str) -> None:
        app = Application(manner)
        self._config = uvicorn.Config(
            app, http=Requests, ws=Connection, ws_ping_interval=None, log_config=None, access_log=False
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

    def _protocol(self) -> Requests:
        return Requests(self._config, self.state, {})

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


def status(line: Line) -> int:
    return int(line.said.split()[1]) if line.said else 0


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("size", [2**16, 1000], ids=["at once", "in pieces"])
def test_an_odd_handshake_is_answered(name: str, size: int) -> None:
    odd, wanted = ODD[name]
    said = HEAD + odd + b"\r\n"
    line = handshake([said[place : place + size] for place in range(0, len(said), size)])
    assert status(line) == wanted
    if wanted != 101:
        body = line.said.partition(b"\r\n\r\n")[2].decode()
        assert body.count("\n") == 1 and body.endswith("\n") and 20 < len(body) < 200, "one sentence"


@pytest.mark.parametrize("name", ODD)
def test_a_plain_request_is_refused_for_its_size_as_the_handshake_is(name: str) -> None:
    """So a page can ask why it got no socket."""
    odd, wanted = ODD[name]
    assert (status(handshake([PLAIN + odd + b"\r\n"])) == 431) == (wanted == 431)


@pytest.mark.parametrize("name", ["too many headers", "a control character", "a cookie that is too large"])
def test_what_only_the_second_parser_refuses_is_answered_too(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(request_head, "check", lambda request: None)
    line = handshake([HEAD + ODD[name][0] + b"\r\n"])
    assert status(line) == 400 and b"malformed" in line.said and line.closed


@pytest.mark.parametrize("manner", APPLICATIONS)
def test_a_handshake_ends_whatever_the_application_does(manner: str) -> None:
    statuses = {"accepts": 101, "denies": 403, "fails": 500, "returns": 500, "never answers": 0}
    line = handshake([HEAD + b"\r\n"], manner)
    assert status(line) == statuses[manner] and line.closed == (manner != "accepts")


@pytest.mark.parametrize("manner", APPLICATIONS)
def test_frames_before_the_end_of_the_handshake_do_no_harm(manner: str) -> None:
    handshake([HEAD + b"\r\n", b"\xff" * 20], manner)


def test_a_request_that_is_malformed_behind_another_is_refused_and_its_answer_is_whole() -> None:
    line = handshake([PLAIN + b"Content-Length: 2\r\n\r\nab", b"GET / HTTP/1.1\r\nnonsense\r\n\r\n"])
    assert re.findall(rb"HTTP/1\.1 (\d+)", line.said) == [b"426", b"400"] and line.closed


def test_a_body_that_is_malformed_behind_its_answer_ends_the_connection() -> None:
    line = handshake([PLAIN + b"Transfer-Encoding: chunked\r\n\r\n", b"no size\r\n"])
    assert re.findall(rb"HTTP/1\.1 (\d+)", line.said) == [b"426"] and line.closed


@st.composite
def spoilt(draw: st.DrawFn) -> list[bytes]:
    """Return requests with odd headers and damaged bytes, in pieces."""
    said = b""
    for _ in range(draw(st.integers(1, 3))):
        lines = [
            draw(st.sampled_from(sorted(odd for odd, _ in ODD.values())))
            for _ in range(draw(st.integers(0, 2)))
        ]
        said += draw(st.sampled_from([HEAD, PLAIN])) + b"".join(lines) + b"\r\n"
        said += draw(st.sampled_from([b"", b"hello", b"5\r\nhello\r\n0\r\n\r\n", b"\x81\x80\0\0\0\0"]))
    damaged = bytearray(said)
    for _ in range(draw(st.integers(0, 4))):
        place = draw(st.integers(0, len(damaged)))
        damaged[place : place + draw(st.integers(0, 9))] = draw(st.binary(max_size=9))
    cuts = sorted(draw(st.lists(st.integers(0, len(damaged)), max_size=6)))
    places = [0, *cuts, len(damaged)]
    return [bytes(damaged[a:b]) for a, b in pairwise(places) if a < b]


@settings(max_examples=150, deadline=None)
@given(spoilt(), st.sampled_from(APPLICATIONS))
@example([b"\r\n"], "accepts")
@example([HEAD], "accepts")
def test_whatever_is_said_is_answered_upgraded_or_dropped(pieces: list[bytes], manner: str) -> None:
    handshake(pieces, manner)
