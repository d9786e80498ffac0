"""A Wyoming server, asked as Home Assistant does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from support.callers import stock_wyoming  # noqa: F401 - before wyoming.audio
from support.callers.phone import served
from support.ports import unused_port
from support.serving import PATIENCE
from wyoming.client import AsyncTcpClient
from wyoming.event import Event

from rejoinder.agent.server.server import Server


@asynccontextmanager
async def home(**flags: Any) -> AsyncIterator[tuple[Server, int]]:
    port = unused_port()
    async with served(wyoming_port=port, **flags) as (program, _):
        yield program, port


def client(port: int) -> AsyncTcpClient:
    return AsyncTcpClient("127.0.0.1", port, read_timeout=PATIENCE)


async def told(one: AsyncTcpClient, *last: str) -> list[Event]:
    """Return the events up to one of the types, or to the end of the connection."""
    came: list[Event] = []
    while (event := await one.read_event()) is not None:
        came.append(event)
        if event.type in last:
            break
    return came


async def asked(port: int, *events: Event, last: str) -> list[Event]:
    async with client(port) as one:
        for event in events:
            await one.write_event(event)
        return await told(one, last, "error")
