"""A telephone connection before the call: which carrier it is, and whether Twilio signed it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.requests import HTTPConnection

from rejoinder.agent.wires.phone.carrier import Carrier
from rejoinder.agent.wires.phone.protocol import sniff
from rejoinder.agent.wires.transport import Disconnected, WebSocketTransport
from rejoinder.pipeline import ProtocolError

START_MESSAGE_SECONDS = 10.0
"""Longest wait for a carrier's start message, in seconds. Until then a connection does not count as a
call."""


async def pick_up(transport: WebSocketTransport) -> Carrier | None:
    """Wait for the carrier's start message; return the carrier, None if the connection closes before.

    Raises ProtocolError. Cancelling stops waiting and leaves the connection open.
    """
    try:
        async with asyncio.timeout(START_MESSAGE_SECONDS):
            while not isinstance(frames := await transport.receive(), Disconnected):
                for number, frame in enumerate(frames, 1):
                    if carrier := sniff(frame):
                        transport.put_back(frames[number:])
                        return carrier
    except TimeoutError:
        raise ProtocolError(f"nothing has started within {START_MESSAGE_SECONDS:g} s") from None
    return None


def is_signed(token: str, public_url: str, websocket: HTTPConnection) -> bool:
    """Return whether Twilio has signed a connection.

    token: the account's secret. public_url: the server's URL as Twilio calls it, "" for the request's own
    host.
    """
    said = websocket.headers.get("x-twilio-signature", "")
    host = urlsplit(public_url).netloc or websocket.headers.get("host", "")
    query = websocket.url.query
    rest = urlsplit(public_url).path.rstrip("/") + websocket.url.path + (f"?{query}" if query else "")
    # Twilio signs the URL with its port or without it: its own libraries try both.
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    urls = [f"wss://{at}{rest}" for at in (host, name, f"{name}:443")]
    return any(hmac.compare_digest(signature(token, url).encode(), said.encode()) for url in urls)


def signature(token: str, url: str, parameters: Mapping[str, str] | None = None) -> str:
    """Return Twilio's signature of a request: of its URL and the form's fields, sorted by name.

    It is an HMAC-SHA1 in base64, with the account's token as key: https://www.twilio.com/docs/usage/security.
    """
    form = "".join(name + value for name, value in sorted((parameters or {}).items()))
    return base64.b64encode(hmac.new(token.encode(), (url + form).encode(), hashlib.sha1).digest()).decode()
