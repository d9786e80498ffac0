"""Bytes of calls, and clients that do not read, in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest
from starlette.websockets import WebSocketState

from rejoinder.agent.metrics.server_metrics import ServerMetrics
from rejoinder.agent.simulate import virtual_clock
from rejoinder.agent.wires.socket import WEBSOCKET_SEND_SECONDS, PlainSocket, Socket
from rejoinder.pipeline import Overloaded


class Reader:
    """The socket of a client that reads, or does not."""

    def __init__(self, reads: bool) -> None:
        self.application_state = WebSocketState.CONNECTED
        self._reads = reads

    async def receive(self) -> dict[str, Any]:
        raise NotImplementedError

    async def send_text(self, data: str) -> None:
        if not self._reads:
            await asyncio.Event().wait()

    send_bytes = send_text


def sent(metrics: ServerMetrics, name: str) -> float | None:
    return metrics.meters.registry.get_sample_value(f"rejoinder_{name}_total", {"wire": "pcm"})


def test_bytes_are_counted_for_each_wire() -> None:
    metrics = ServerMetrics()
    socket = PlainSocket(cast(Socket, Reader(True)), metrics.observe("pcm").traffic)
    virtual_clock.run(socket.send([{"type": "a"}, b"1234"]))
    assert sent(metrics, "sent_bytes") == len('{"type": "a"}') + 4
    assert sent(metrics, "stalled_clients") == 0


def test_a_client_that_does_not_read_stalls() -> None:
    metrics = ServerMetrics()
    socket = PlainSocket(cast(Socket, Reader(False)), metrics.observe("pcm").traffic)
    with pytest.raises(Overloaded, match="has not read for 5 s"):
        virtual_clock.run(socket.send(["a"]))
    assert sent(metrics, "stalled_clients") == 1


def test_a_socket_that_another_one_replaces_has_not_stalled() -> None:
    metrics = ServerMetrics()
    socket = PlainSocket(cast(Socket, Reader(False)), metrics.observe("pcm").traffic)

    async def replace() -> None:
        sending = asyncio.create_task(socket.write("a"))
        await asyncio.sleep(WEBSOCKET_SEND_SECONDS / 2)
        socket.stop()
        with pytest.raises(Overloaded):
            await sending

    virtual_clock.run(replace())
    assert sent(metrics, "stalled_clients") == 0
