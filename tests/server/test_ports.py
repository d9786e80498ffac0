"""The ports without HTTP, AudioSocket's and Wyoming's: limits per address, and the end of the server."""

from __future__ import annotations

import asyncio

import pytest
from support.callers.asterisk import UUID, calling
from support.callers.home_assistant import asked, client, home, told
from support.callers.phone import served
from support.serving import unused_port
from wyoming.asr import Transcript
from wyoming.error import Error
from wyoming.event import Event
from wyoming.info import Describe
from wyoming.ping import Ping
from wyoming.tts import SynthesizeStart

from rejoinder.agent.server.limiting.shared_limits import UNCHECKED
from rejoinder.agent.wires.audiosocket.protocol import HANG_UP_PACKET, packet
from rejoinder.agent.wires.operating.departure import SHUTTING_DOWN


async def taken(port: int) -> list[Event]:
    """Connect until the server takes the connection, for at most 20 s; return the answer."""
    async with asyncio.timeout(20.0):
        while Error.is_type((events := await asked(port, Ping("a").event(), last="pong"))[-1].type):
            pass
    return events


ASK = Transcript("hello").event()


def reason(events: list[Event]) -> str:
    assert Error.is_type(events[-1].type), events
    assert Error.from_event(events[-1]).code == "overloaded"
    return Error.from_event(events[-1]).text


def test_connections_of_wyoming_count_for_their_address() -> None:
    async def call() -> None:
        async with home(address_sessions=1) as (_, port):
            async with client(port) as one:
                await one.write_event(Describe().event())
                assert (await told(one, "info"))[-1].type == "info"
                async with client(port) as other:
                    said = reason(await told(other))
                assert said == "this address has reached its limit of calls at a time: 1"
            assert (await taken(port))[-1].type == "pong", "the first one does not count any more"

    asyncio.run(call())


def test_requests_of_wyoming_count_for_their_address() -> None:
    async def ask() -> None:
        async with home(address_calls_per_min=2) as (_, port), client(port) as one:
            for _ in range(2):
                await one.write_event(ASK)
                assert (await told(one, "handled-stop", "error"))[-1].type == "handled-stop"
            await one.write_event(ASK)
            assert reason(await told(one, "error")).endswith("new calls and requests in a minute: 2")
            await one.write_event(Describe().event())
            assert (await told(one, "info"))[-1].type == "info", "it costs nothing"

    asyncio.run(ask())


def test_ports_refuse_while_the_limits_cannot_be_checked() -> None:
    away = {"limits_store": "redis://127.0.0.1:1", "limits_without_store": "closed", "address_sessions": 9}

    async def wyoming() -> None:
        async with home(**away) as (_, port):
            assert reason(await asked(port, ASK, last="handled-stop")) == UNCHECKED.reason

    async def audiosocket() -> None:
        port = unused_port()
        async with served(audiosocket_port=port, **away) as (program, _):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(UUID)
            async with asyncio.timeout(20.0):
                assert await reader.read() == packet(HANG_UP_PACKET)
            writer.close()
            assert not program.calls

    asyncio.run(wyoming())
    asyncio.run(audiosocket())


def test_request_of_wyoming_in_progress_ends_before_the_server_does() -> None:
    async def drain() -> None:
        async with home(drain_s=600) as (program, port), client(port) as busy, client(port) as idle:
            for one in (busy, idle):
                await one.write_event(Ping("here").event())
                await told(one, "pong")
            await busy.write_event(SynthesizeStart().event())
            await busy.write_event(Event("synthesize-chunk", {"text": "It is sunny. "}))
            await told(busy, "audio-start")
            draining = asyncio.create_task(program.drain())
            await asyncio.sleep(0)
            await idle.write_event(ASK)
            assert reason(await told(idle, "error")).startswith(SHUTTING_DOWN)
            assert reason(await asked(port, ASK, last="handled-stop")).startswith(SHUTTING_DOWN)
            assert not draining.done(), "the rest of the text may still come"
            await busy.write_event(Event("synthesize-chunk", {"text": "Take a hat."}))
            await busy.write_event(Event("synthesize-stop"))
            assert (await told(busy, "synthesize-stopped"))[-1].type == "synthesize-stopped"
            async with asyncio.timeout(20.0):
                await draining

    asyncio.run(drain())


@pytest.mark.parametrize("limit", ["address_sessions", "address_calls_per_min"])
def test_calls_of_audiosocket_count_for_their_address(limit: str) -> None:
    async def call() -> None:
        port = unused_port()
        async with served(audiosocket_port=port, **{limit: 1}) as (program, _):
            async with calling(port) as first:
                await first.until(lambda: program.calls)
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                writer.write(UUID)
                async with asyncio.timeout(20.0):
                    assert await reader.read() == packet(HANG_UP_PACKET)
                writer.close()
                assert len(program.calls) == 1
            await first.until(lambda: not program.calls)
            async with calling(port) as again:
                if limit == "address_sessions":
                    await again.until(lambda: program.calls or again.hung_up)
                    assert program.calls, "the first one does not count any more"
                else:
                    await again.until(lambda: again.hung_up)

    asyncio.run(call())
