"""A call goes on when what follows it from outside fails."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import MutableMapping
from typing import Any

import pytest
from starlette.websockets import WebSocketState

from rejoinder.agent.metrics.server_metrics import ServerMetrics
from rejoinder.agent.simulate import virtual_clock
from rejoinder.agent.wires.call import WireCall
from rejoinder.agent.wires.observer import CallObserver, NoObserver, Observed
from rejoinder.agent.wires.pcm.protocol import Pcm
from rejoinder.agent.wires.socket import PlainSocket
from rejoinder.models.scripted import ScriptedLlm, ScriptedStt, ScriptedTts, ScriptedVad
from rejoinder.pipeline import Models, Options, ReplyDone, Session, Usage
from rejoinder.pipeline.engines.load_shedding import LoadShedder


class AskingClient:
    """The socket of a client that asks for one reply, and leaves when it has ended."""

    application_state = WebSocketState.CONNECTED

    def __init__(self) -> None:
        self.answered = asyncio.Event()
        self._asked = False

    async def receive(self) -> MutableMapping[str, Any]:
        if not self._asked:
            self._asked = True
            return {"type": "websocket.receive", "text": '{"type": "reply"}'}
        await self.answered.wait()
        return {"type": "websocket.disconnect", "code": 1000}

    async def send_text(self, data: str) -> None:
        if '"reply_ended"' in data:
            self.answered.set()

    async def send_bytes(self, data: bytes) -> None:
        pass

    async def close(self, code: int = 1000, reason: str | None = None) -> None:
        pass


class BrokenObserver(NoObserver):
    """Fails in one of its methods. ended: whether it was told of the end."""

    def __init__(self, where: str) -> None:
        super().__init__()
        self.ended = False
        self._where = where

    def _fail(self, where: str) -> None:
        if where == self._where:
            raise ValueError(f"a bug in {where}")

    def begin(self, session: Session) -> None:
        self._fail("begin")

    def take(self, event: Observed) -> None:
        self._fail("take")

    def end(self, error: BaseException | None, reason: str) -> None:
        self.ended = True
        self._fail("end")


def hold(observer: CallObserver) -> tuple[tuple[int, str], bool]:
    """Hold a call; return its close code and reason, and whether the client was answered."""
    models = Models(
        ScriptedVad(), ScriptedStt([""]), ScriptedLlm(["Yes."]), ScriptedTts(), load_shedder=LoadShedder()
    )

    async def main() -> tuple[tuple[int, str], bool]:
        client = AskingClient()
        call = WireCall(
            PlainSocket(client), models, Options(), Pcm(Options()), None, None, None, observer, None
        )
        return await call.run(), client.answered.is_set()

    return virtual_clock.run(main())


@pytest.mark.parametrize("where", ["begin", "take", "end"])
def test_call_goes_on_when_an_observer_fails(where: str, caplog: pytest.LogCaptureFixture) -> None:
    observer = BrokenObserver(where)
    assert hold(observer) == ((0, ""), True)
    assert observer.ended, "it may have a call to forget"
    (record,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
    assert record.exc_info and str(record.exc_info[1]) == f"a bug in {where}"


def test_negative_counts_of_a_server_are_not_counted() -> None:
    metrics = ServerMetrics("m")
    metrics.observe("pcm").take(ReplyDone(1, "completed", "", usage=Usage(-3, 5)))
    value = metrics.meters.registry.get_sample_value
    assert value("rejoinder_llm_tokens_total", {"model": "m", "direction": "input"}) == 0.0
    assert value("rejoinder_llm_tokens_total", {"model": "m", "direction": "output"}) == 5.0
