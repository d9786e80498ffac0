"""Bytes of calls, and clients that do not read, in virtual time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.websockets import WebSocket, WebSocketState

from rejoinder.agent.metrics.server_metrics import ServerMetrics
from rejoinder.agent.simulate import virtual_clock
from rejoinder.agent.wires.transport import WEBSOCKET_SEND_SECONDS, WebSocketTransport
from rejoinder.pipeline import Overloaded


class Reader:
    """The socket of a client that sends two messages, and reads, or does not."""

    def __init__(self, reads: bool) -> None:
        self.application_state = WebSocketState.CONNECTED
        self.client = None
        self.url = SimpleNamespace(path="/v1/pcm")
        self._reads = reads

    async def receive(self) -> dict[str, Any]:
        return {"type": "websocket.receive", "bytes": b"123", "rejoinder.frames": [b"123", "words"]}

    async def send_text(self, data: str) -> None:
        if not self._reads:
            await asyncio.Event().wait()

    send_bytes = send_text


def transport(metrics: ServerMetrics, reads: bool) -> WebSocketTransport:
    made = WebSocketTransport(cast(WebSocket, Reader(reads)))
    made.traffic = metrics.traffic("pcm")
    return made


def counted(metrics: ServerMetrics, name: str) -> float | None:
    return metrics.meters.registry.get_sample_value(f"rejoinder_{name}_total", {"wire": "pcm"})


def test_bytes_are_counted_for_each_wire() -> None:
    metrics = ServerMetrics()

    async def talk() -> None:
        client = transport(metrics, reads=True)
        await client.receive()
        await client.send([{"type": "a"}, b"1234"])
        await transport(metrics, reads=True).send(["another connection"])

    virtual_clock.run(talk())
    assert counted(metrics, "received_bytes") == len(b"123words")
    assert counted(metrics, "sent_bytes") == len('{"type": "a"}') + 4 + len("another connection")
    assert counted(metrics, "stalled_clients") == 0


def test_a_client_that_does_not_read_stalls() -> None:
    metrics = ServerMetrics()

    async def talk() -> None:
        with pytest.raises(Overloaded, match="has not read for 5 s"):
            await transport(metrics, reads=False).send(["a"])

    virtual_clock.run(talk())
    assert (counted(metrics, "stalled_clients"), counted(metrics, "sent_bytes")) == (1, 0)


def test_a_socket_that_another_one_replaces_has_not_stalled() -> None:
    metrics = ServerMetrics()

    async def replace() -> None:
        client = transport(metrics, reads=False)
        sending = asyncio.create_task(client.write("a"))
        await asyncio.sleep(WEBSOCKET_SEND_SECONDS / 2)
        client.stop()
        with pytest.raises(Overloaded):
            await sending

    virtual_clock.run(replace())
    assert counted(metrics, "stalled_clients") == 0
