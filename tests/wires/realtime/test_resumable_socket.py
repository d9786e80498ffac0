"""What a call reads while its client is away, in virtual time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

from starlette.datastructures import URL
from starlette.websockets import WebSocketState
from websockets.frames import CloseCode

from rejoinder.agent.simulate import virtual_clock
from rejoinder.agent.wires.realtime.events import event
from rejoinder.agent.wires.realtime.protocol import Realtime
from rejoinder.agent.wires.realtime.resumable_socket import ResumableSocket, SocketLease
from rejoinder.agent.wires.realtime.resuming import ResumeRequest
from rejoinder.agent.wires.socket import ClientAway, Gone, Lost, Resumed
from rejoinder.agent.wires.transport import Disconnected, WebSocketTransport
from rejoinder.pipeline import Options

SECONDS = 2.0
NORMAL, ABNORMAL = CloseCode.NORMAL_CLOSURE, CloseCode.ABNORMAL_CLOSURE


class Line:
    """A WebSocket that ends with a close code after a second. full: whether its client reads nothing."""

    application_state = WebSocketState.CONNECTED
    client = ("127.0.0.1", 1)
    url = URL("/v1/realtime")

    def __init__(self, code: int = ABNORMAL, full: bool = False) -> None:
        self.scope: dict[str, Any] = {}
        self.sent: list[Any] = []
        self._code, self._full = code, full

    async def receive(self) -> dict[str, Any]:
        await asyncio.sleep(100.0 if self._full else 1.0)
        return {"type": "websocket.disconnect", "code": self._code}

    async def send_text(self, data: str) -> None:
        if self._full:
            await asyncio.sleep(100.0)
        self.sent.append(json.loads(data))


def lease(line: Line) -> SocketLease:
    given: Any = line
    return SocketLease(WebSocketTransport(given))


def test_client_that_hangs_up_is_not_waited_for() -> None:
    async def run() -> None:
        socket = ResumableSocket(lease(Line(NORMAL)), Realtime(Options()), SECONDS)
        assert await socket.receive() == Disconnected(NORMAL)
        assert not socket.waits
        impatient = ResumableSocket(lease(Line()), Realtime(Options()), 0.0)
        assert await impatient.receive() == Disconnected(ABNORMAL)

    virtual_clock.run(run())


def test_client_that_does_not_come_back_is_gone_after_a_while() -> None:
    async def run() -> None:
        first = lease(Line())
        socket = ResumableSocket(first, Realtime(Options()), SECONDS)
        lost = await socket.receive()
        assert isinstance(lost, Lost) and (lost.reason, lost.seconds, lost.empty) == (
            "it broke off",
            SECONDS,
            True,
        )
        assert not first.ended.done(), "the call may still end instead"
        notices = []
        while not isinstance(notice := await socket.receive(), Gone):
            notices.append(notice)
        assert set(notices) == {ClientAway(0.1)} and 19 <= len(notices) <= 21
        assert asyncio.get_running_loop().time() == 1.0 + SECONDS
        assert first.ended.done() and socket.waits and "within 2 s" in notice.reason

    virtual_clock.run(run())


def test_client_that_comes_back_is_sent_what_it_missed_before_anything_else() -> None:
    async def run() -> None:
        old, new = Line(), Line()
        wire = Realtime(Options())
        socket = ResumableSocket(lease(old), wire, SECONDS)
        await socket.send(wire.open())
        assert isinstance(await socket.receive(), Lost) and isinstance(await socket.receive(), ClientAway)
        missed = event("missed")
        await socket.send([missed])
        socket.take(lease(new), ResumeRequest(wire.conversation, old.sent[-1]["event_id"]))
        back = await socket.receive()
        assert isinstance(back, Resumed) and back.client == new.client
        await socket.send([also := event("also missed")])
        released: list[Mapping[int, float]] = []

        def release(unheard: Mapping[int, float]) -> None:
            assert not new.sent
            released.append(unheard)

        later = event("later")
        await asyncio.gather(back.catch_up(None, release), socket.send([later]))
        assert new.sent[2]["type"] == "rejoinder.resumed" and new.sent[3:] == [missed, also, later]
        assert released == [{}] and missed not in old.sent and not socket.waits

    virtual_clock.run(run())


def test_client_that_reads_nothing_loses_its_socket_and_no_event() -> None:
    async def run() -> None:
        full, new = lease(Line(full=True)), Line()
        wire = Realtime(Options())
        socket = ResumableSocket(full, wire, SECONDS)
        reading = asyncio.create_task(socket.receive())
        await socket.send([stuck := event("stuck")])
        lost = await reading
        assert isinstance(lost, Lost) and "has not read for 5 s" in lost.reason
        assert full.ended.result()[1] == lost.reason
        socket.take(lease(new), ResumeRequest(wire.conversation))
        back = await socket.receive()
        assert isinstance(back, Resumed)
        await back.catch_up(None, lambda unheard: None)
        assert [one["type"] for one in new.sent[:3]] == [
            "session.created",
            "conversation.created",
            "rejoinder.resumed",
        ]
        assert stuck["event_id"] not in [one["event_id"] for one in new.sent], (
            "it kept nothing, so it gets the items"
        )

    virtual_clock.run(run())
