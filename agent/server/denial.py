"""The answer to a client that may not call or ask."""

from __future__ import annotations

from typing import NamedTuple

from starlette.responses import PlainTextResponse
from starlette.websockets import WebSocket


class Denial(NamedTuple):
    """Why a client may not call or ask.

    status: of HTTP. retry: seconds until it may, 0 for never. location: where it may call instead, "" for
        nowhere.
    """

    status: int
    reason: str
    retry: int = 0
    location: str = ""

    def response(self) -> PlainTextResponse:
        """Return the answer to a request."""
        headers = {"Retry-After": str(self.retry)} if self.retry else {}
        headers |= {"Location": self.location} if self.location else {}
        return PlainTextResponse(f"{self.reason}\n", self.status, headers)

    async def send(self, websocket: WebSocket) -> None:
        """Answer a handshake that is not accepted. Cancelling leaves it to the server, which drops it."""
        await websocket.send_denial_response(self.response())
