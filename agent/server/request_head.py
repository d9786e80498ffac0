"""Checks the head of a request, with the same rules for plain requests and WebSocket handshakes.

h11 and then ``websockets`` parse a handshake, and they differ on what is well formed. A head that
``websockets`` refuses must be refused here, before h11 has passed it on.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TypeAlias

import h11
from websockets.http11 import MAX_LINE_LENGTH, MAX_NUM_HEADERS

from rejoinder.agent.server.http.headers import HEADERS

HEAD_BYTES = 16 * 2**10
"""Most bytes in a head. The limits of a line and of the number of headers are those of ``websockets``."""
BAD_REQUEST = 400
"""HTTP status."""
HEADERS_TOO_LARGE = 431
"""HTTP status."""
NAME_LETTERS = 40
"""Most characters of a header's name in an error message."""
HEADER_VALUE = re.compile(rb"[\t -~\x80-\xff]*")
"""Allowed characters in the value of a header (RFC 9110, 5.5)."""

Event: TypeAlias = h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]


class BadHead(Exception):
    """A request is refused, with this HTTP status."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def check(request: h11.Request) -> None:
    """Raise BadHead for a head that is too large or malformed, or gives the body's length in two ways."""
    lines = [len(request.method) + len(request.target) + len(b"  HTTP/1.1\r\n")]
    for name, value in request.headers:
        said = name[:NAME_LETTERS].decode("ascii")
        lines.append(len(name) + len(value) + len(b": \r\n"))
        if lines[-1] > MAX_LINE_LENGTH:
            # Cookies are shared by all ports of a host, so another program may have set them.
            advice = ": clear the cookies of this host" if name == b"cookie" else ""
            reason = f"the header {said} has {lines[-1]:,} bytes, and {MAX_LINE_LENGTH:,} are allowed{advice}"
            raise BadHead(HEADERS_TOO_LARGE, reason)
        if not HEADER_VALUE.fullmatch(value):
            raise BadHead(BAD_REQUEST, f"the header {said} has a control character in it")
    if lines[0] > MAX_LINE_LENGTH:
        reason = f"the request line has {lines[0]:,} bytes, and {MAX_LINE_LENGTH:,} are allowed"
        raise BadHead(HEADERS_TOO_LARGE, reason)
    if len(lines) - 1 > MAX_NUM_HEADERS:
        reason = f"the request has {len(lines) - 1:,} headers, and {MAX_NUM_HEADERS} are allowed"
        raise BadHead(HEADERS_TOO_LARGE, reason)
    if sum(lines) > HEAD_BYTES:
        raise BadHead(HEADERS_TOO_LARGE, too_large())
    if {b"content-length", b"transfer-encoding"} <= {name for name, _ in request.headers}:
        # RFC 9112, 6.1: two readers may disagree about where the body ends.
        raise BadHead(BAD_REQUEST, "the request has Content-Length and Transfer-Encoding: send one of them")


def check_handshake(request: h11.Request) -> None:
    """Raise BadHead for a handshake with a body."""
    headers = dict(request.headers)
    if headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers:
        reason = "a WebSocket handshake has no body: send neither Content-Length nor Transfer-Encoding"
        raise BadHead(BAD_REQUEST, reason)


def too_large() -> str:
    """Return the message for a head that is too large as a whole."""
    return f"the head of the request has more than {HEAD_BYTES:,} bytes: send fewer headers, or clear cookies"


def answer(bad: BadHead) -> bytes:
    """Return the bytes of the response to a refused request. The connection closes after it."""
    phrase = {BAD_REQUEST: "Bad Request", HEADERS_TOO_LARGE: "Request Header Fields Too Large"}
    body = f"{bad}\n".encode()
    head = (
        f"HTTP/1.1 {bad.status} {phrase[bad.status]}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n"
    )
    head += "".join(f"{name}: {value}\r\n" for name, value in HEADERS) + "\r\n"
    return head.encode() + body


class Reader(h11.Connection):
    """h11's parser, which checks requests before it passes them on.

    refuse: called once, with the reason. After that there are no more events.
    """

    def __init__(self, refuse: Callable[[BadHead], None]) -> None:
        super().__init__(h11.SERVER, HEAD_BYTES)
        self._refuse = refuse
        self.refused = False

    def next_event(self) -> Event:
        """Return the next event in the received bytes."""
        in_head = self.their_state is h11.IDLE
        try:
            event = h11.NEED_DATA if self.refused else super().next_event()
            if isinstance(event, h11.Request):
                check(event)
        except h11.RemoteProtocolError as error:
            large = in_head and error.error_status_hint == HEADERS_TOO_LARGE
            # h11 appends all the wrong bytes to its message.
            why = str(error).partition(": b")[0]
            reason = too_large() if large else f"the request is malformed: {why}"
            self.refuse(BadHead(HEADERS_TOO_LARGE if large else BAD_REQUEST, reason))
        except BadHead as bad:
            self.refuse(bad)
        return h11.NEED_DATA if self.refused else event

    def refuse(self, bad: BadHead) -> None:
        """Refuse the request and return no more events."""
        self.refused = True
        self._refuse(bad)
