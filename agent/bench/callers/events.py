"""Waits for events of the Realtime protocol on a plain socket."""

from __future__ import annotations

import json
from typing import Any

from websockets.asyncio.client import ClientConnection


async def event_of(socket: ClientConnection, *kinds: str) -> dict[str, Any]:
    """Receive events until one of these types comes, and return it. Cancelling drops what was received."""
    while (event := json.loads(await socket.recv()))["type"] not in kinds:
        pass
    found: dict[str, Any] = event
    return found
