"""Asterisk's AudioSocket: packets as plain bytes, and calls over a real TCP socket."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import speech
from support.callers.asterisk import UUID, calling
from support.callers.phone import REAL, plain, question, served, transcribed
from support.ports import unused_port
from support.serving import PATIENCE, run_command

from rejoinder.agent.wires.audiosocket.protocol import (
    MOST_QUEUED,
    AudioSocket,
    Packets,
    Queue,
    packet,
    started,
)
from rejoinder.models.scripted import SECONDS_PER_CHARACTER
from rejoinder.pipeline import Overloaded, ProtocolError

COUNT = " ".join(f"number {n:03}" for n in range(100, 200)) + "."


@given(st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=400))), st.lists(st.integers(1, 90)))
def test_packets_are_complete_at_any_split_of_the_stream(
    said: list[tuple[int, bytes]], cuts: list[int]
) -> None:
    stream, packets, came = b"".join(packet(*one) for one in said), Packets(), []
    for size in [*cuts, len(stream) + 1]:
        came += packets.feed(stream[:size])
        stream = stream[size:]
    assert came == [packet(*one) for one in said]


@given(st.lists(st.binary(max_size=60)))
def test_every_byte_string_ends_in_packets_or_in_the_protocols_error(pieces: list[bytes]) -> None:
    packets, call = Packets(), AudioSocket(0x10)
    for whole in (whole for piece in pieces for whole in packets.feed(piece)):
        for use in (started, call.receive):
            try:
                use(whole)
            except ProtocolError as error:
                assert str(error)


def test_queue_plays_holds_and_clears_to_the_packet() -> None:
    queue = Queue()
    for frame in (b"1", "mark a", b"2", "mark b"):
        queue.take(frame)
    assert queue.next() == (b"1", [])
    queue.take("hold")
    assert queue.next() == (None, [])
    queue.take("release")
    assert queue.next() == (b"2", ["a"])
    queue.take(b"3")
    queue.take("clear")
    assert queue.next() == (None, []), "neither the packet nor the mark before it"
    with pytest.raises(Overloaded):
        for _ in range(MOST_QUEUED + 1):
            queue.take(b"x")


def test_interruption_keeps_the_sent_text_in_the_history() -> None:
    async def hold() -> None:
        port = unused_port()
        async with served(llm=f"scripted:llm|{COUNT}", audiosocket_port=port) as (program, _):
            prompts = program.models.llm.prompts  # type: ignore[union-attr]
            async with calling(port) as caller:
                caller.loud(0.6)
                await caller.until(lambda: caller.seconds_heard > 2.5)
                ahead = [0.02 * n - (at - caller.arrivals[0]) for n, at in enumerate(caller.arrivals)]
                # What a late reader takes at once was not sent at once; the socket holds no more than that.
                assert max(ahead) < 0.1, "never ahead of real time"
                asked = len(prompts)
                caller.loud(1.5)
                await caller.until(lambda: len(prompts) > asked)
                told = [message for message in prompts[-1] if message["role"] == "assistant"][-1]["content"]
                words = caller.seconds_heard / (SECONDS_PER_CHARACTER * 11) * 2
                assert told.endswith("—") and abs(len(told.split()) - words) <= 1.5
                silent = caller.seconds_heard
                for key in "42#":
                    caller.digit(key)
                await caller.until(lambda: "(pressed 42 on the keypad)" in prompts[-1][-1]["content"])
                await caller.until(lambda: caller.seconds_heard > silent)

    asyncio.run(hold())


@pytest.mark.weights
def test_recording_is_answered_by_the_models_as_they_ship() -> None:
    speech.need(*REAL.values())

    async def hold() -> None:
        port = unused_port()
        llm = "scripted:llm|It is sunny, and rather warm for November."
        async with served(**REAL, llm=llm, audiosocket_port=port) as (program, _), calling(port) as caller:
            caller.say(question(8000))
            await caller.until(lambda: caller.seconds_heard > 2.0)
            prompt = program.models.llm.prompts[-1]  # type: ignore[union-attr]
            assert "weather" in prompt[-1]["content"].lower()
            heard = ""
            async with asyncio.timeout(PATIENCE):
                while "rather warm" not in heard:  # on a busy machine it is said late
                    await asyncio.sleep(1.0)
                    heard = plain(await transcribed(program, bytes(caller.ear), 8000))

    asyncio.run(hold())


@pytest.mark.parametrize(
    "said", [packet(0x77), UUID + 2 * packet(0x10, b"\x00"), packet(0x14, bytes(4)), packet(0)]
)
def test_invalid_connection_is_hung_up(said: bytes) -> None:
    async def hold() -> None:
        port = unused_port()
        async with served(audiosocket_port=port) as (program, _):
            before = asyncio.all_tasks()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(said)
            async with asyncio.timeout(PATIENCE):
                assert await reader.read() == packet(0x00)
                writer.close()
                while asyncio.all_tasks() - before or program.calls:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)

    asyncio.run(hold())


@pytest.mark.parametrize(
    ("pieces", "reason"),
    [
        ([packet(0x10, bytes(320))], "instead of the call's UUID"),
        ([b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"], "it begins with b'GET' instead"),
        ([packet(0x01, bytes(4))], "a UUID of 4 bytes, not 16"),
        ([b"\x01", b"\x00", b"\x24"], "a UUID of 36 bytes, not 16"),
    ],
)
def test_connection_without_a_uuid_is_hung_up_at_once(
    pieces: list[bytes], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def hold() -> None:
        port = unused_port()
        async with served(audiosocket_port=port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for piece in pieces:
                writer.write(piece)
                await asyncio.sleep(0.02)
            async with asyncio.timeout(PATIENCE):  # after a while the reason would be another one
                assert await reader.read() == packet(0x00)
            writer.close()

    asyncio.run(hold())
    (noted,) = [one for one in caplog.records if reason in one.message]
    assert noted.levelname == "WARNING"


def test_call_ends_with_the_server() -> None:
    async def hold() -> None:
        port = unused_port()
        reader: asyncio.StreamReader
        async with served(audiosocket_port=port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(UUID)
            await asyncio.sleep(0.1)
        async with asyncio.timeout(PATIENCE):
            assert await reader.read() == b""
        writer.close()

    asyncio.run(hold())


def test_port_that_is_taken_is_named(tmp_path: Any) -> None:
    async def hold() -> None:
        taken = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        port = taken.sockets[0].getsockname()[1]
        said = await asyncio.to_thread(
            run_command, "serve", "--port", "0", folder=tmp_path, REJOINDER_AUDIOSOCKET_PORT=str(port)
        )
        taken.close()
        assert said.returncode != 0 and f"audiosocket_port {port}" in " ".join(said.stderr.split())

    asyncio.run(hold())
