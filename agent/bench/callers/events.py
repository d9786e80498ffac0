"""Waits for events of the Realtime protocol."""

from __future__ import annotations

import json
from typing import Any

from websockets.asyncio.client import ClientConnection

from rejoinder.pipeline import PipelineError


async def event_of(socket: ClientConnection, type_: str) -> dict[str, Any]:
    """Receive events until one of this type comes, and return it.

    Raises PipelineError if a reply ends before. Cancelling drops what was received.
    """
    while True:
        event: dict[str, Any] = json.loads(await socket.recv())
        if event["type"] == type_:
            return event
        if event["type"] == "response.done":
            raise PipelineError(f"a reply ended without {type_}: {event['response']['status_details']}")
