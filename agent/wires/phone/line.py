"""A telephone line before the call: who calls, and whether they may."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
from collections.abc import Mapping
from urllib.parse import urlsplit

from starlette.websockets import WebSocket

from rejoinder.agent.wires.phone.carrier import Carrier
from rejoinder.agent.wires.phone.protocol import sniff
from rejoinder.agent.wires.socket import frame_of
from rejoinder.pipeline import PipelineError, ProtocolError

START_SECONDS = 10.0
"""So long a carrier may take to say which call it is about: until then a connection occupies no line."""


class NotStarted(PipelineError):
    """A connection did not become a call; the message says why."""


async def pick_up(websocket: WebSocket) -> Carrier:
    """Wait until a carrier has said who it is. Raises NotStarted."""
    try:
        async with asyncio.timeout(START_SECONDS):
            while True:
                message = await websocket.receive()
                if message["type"] == "websocket.disconnect":
                    raise NotStarted("it was closed before its start")
                if carrier := sniff(frame_of(message)):
                    return carrier
    except TimeoutError:
        raise NotStarted(f"nothing has started within {START_SECONDS:g} s") from None
    except ProtocolError as error:
        raise NotStarted(str(error)) from error


def is_signed(token: str, public_url: str, websocket: WebSocket) -> bool:
    """Tell whether Twilio has signed a connection; ``public_url``: where it calls, empty for our host."""
    said = websocket.headers.get("x-twilio-signature", "")
    host = urlsplit(public_url).netloc or websocket.headers.get("host", "")
    query = websocket.url.query
    rest = urlsplit(public_url).path.rstrip("/") + websocket.url.path + (f"?{query}" if query else "")
    # Twilio signs the address with its port or without: its own libraries try both.
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    urls = [f"wss://{at}{rest}" for at in (host, name, f"{name}:443")]
    return any(hmac.compare_digest(signature(token, url).encode(), said.encode()) for url in urls)


def signature(token: str, url: str, parameters: Mapping[str, str] | None = None) -> str:
    """Return what Twilio signs a request with: the address, and a form's fields by name.

    https://www.twilio.com/docs/usage/security: HMAC-SHA1 with the account's token as key, in base64.
    """
    form = "".join(name + value for name, value in sorted((parameters or {}).items()))
    return base64.b64encode(hmac.new(token.encode(), (url + form).encode(), hashlib.sha1).digest()).decode()
