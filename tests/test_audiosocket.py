"""Asterisk's AudioSocket: packets as plain bytes, and calls over a real TCP socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
import speech
from hypothesis import given
from hypothesis import strategies as st
from phone_caller import REAL, plain, question, served, transcribed
from serving import PATIENCE, run_command

from rejoinder.agent.audiosocket import MOST_QUEUED, AudioSocket, Packets, Queue, packet, started
from rejoinder.agent.audiosocket_server import START_SECONDS
from rejoinder.agent.own_server import free_port
from rejoinder.models.scripted import SECONDS_PER_CHARACTER
from rejoinder.pipeline import Overloaded, ProtocolError

UUID = packet(0x01, bytes(16))
COUNT = " ".join(f"number {n:03}" for n in range(100, 200)) + "."


@given(st.lists(st.tuples(st.integers(0, 255), st.binary(max_size=400))), st.lists(st.integers(1, 90)))
def test_packets_come_whole_however_the_stream_is_cut(said: list[tuple[int, bytes]], cuts: list[int]) -> None:
    stream, packets, came = b"".join(packet(*one) for one in said), Packets(), []
    for size in [*cuts, len(stream) + 1]:
        came += packets.feed(stream[:size])
        stream = stream[size:]
    assert came == [packet(*one) for one in said]


@given(st.lists(st.binary(max_size=60)))
def test_every_byte_string_ends_in_packets_or_in_the_protocols_error(pieces: list[bytes]) -> None:
    packets, call = Packets(), AudioSocket(0x10)
    for whole in (whole for piece in pieces for whole in packets.feed(piece)):
        for use in (started, call.hear):
            try:
                use(whole)
            except ProtocolError as error:
                assert str(error)


def test_the_queue_plays_holds_and_clears_to_the_packet() -> None:
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


class Asterisk:
    """The other end, in real time: sends 20 ms every 20 ms, and loses what comes ahead of its time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.ear = bytearray()
        self.arrivals: list[float] = []
        self.hung_up = False
        self._mouth = bytearray()
        self._reader, self._writer = reader, writer

    @property
    def seconds_heard(self) -> float:
        return len(self.ear) / 16_000

    def say(self, pcm: bytes) -> None:
        self._mouth += pcm

    def loud(self, seconds: float) -> None:
        noise = np.random.default_rng(0).normal(0.0, 6000.0, int(8000 * seconds))
        self.say(noise.astype("<i2").tobytes())

    def digit(self, key: str) -> None:
        self._writer.write(packet(0x03, key.encode()))

    async def speak(self) -> None:
        loop = asyncio.get_running_loop()
        began, ticks = loop.time(), 0
        while True:
            ticks += 1
            await asyncio.sleep(max(0.0, began + 0.02 * ticks - loop.time()))
            self._writer.write(packet(0x10, bytes(self._mouth[:320]).ljust(320, b"\x00")))
            del self._mouth[:320]

    async def listen(self) -> None:
        while True:
            head = await self._reader.readexactly(3)
            payload = await self._reader.readexactly(int.from_bytes(head[1:], "big"))
            if head[0] == 0x00:
                self.hung_up = True
                return
            assert head[0] == 0x10 and len(payload) == 320
            self.ear += payload
            self.arrivals.append(asyncio.get_running_loop().time())

    async def until(self, true: Any) -> None:
        async with asyncio.timeout(PATIENCE):
            while not true():  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(0.02)


@asynccontextmanager
async def calling(port: int) -> AsyncIterator[Asterisk]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(UUID)
    caller = Asterisk(reader, writer)
    tasks = [asyncio.create_task(caller.speak()), asyncio.create_task(caller.listen())]
    try:
        yield caller
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        writer.close()


def test_a_caller_interrupts_and_the_history_has_what_was_sent() -> None:
    async def hold() -> None:
        port = free_port()
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
def test_a_recording_is_answered_by_the_models_as_they_ship() -> None:
    speech.need(*REAL.values())

    async def hold() -> None:
        port = free_port()
        llm = "scripted:llm|It is sunny, and rather warm for November."
        async with served(**REAL, llm=llm, audiosocket_port=port) as (program, _), calling(port) as caller:
            caller.say(question(8000))
            await caller.until(lambda: caller.seconds_heard > 2.0)
            prompt = program.models.llm.prompts[-1]  # type: ignore[union-attr]
            assert "weather" in prompt[-1]["content"].lower()
            await asyncio.sleep(1.0)
            assert "rather warm" in plain(await transcribed(program, bytes(caller.ear), 8000))

    asyncio.run(hold())


@pytest.mark.parametrize(
    "said", [packet(0x77), UUID + 2 * packet(0x10, b"\x00"), packet(0x14, bytes(4)), packet(0)]
)
def test_what_is_no_call_is_hung_up_on(said: bytes) -> None:
    async def hold() -> None:
        port = free_port()
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
def test_a_call_that_does_not_begin_with_its_uuid_is_hung_up_on_at_once(
    pieces: list[bytes], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def hold() -> None:
        port = free_port()
        async with served(audiosocket_port=port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            for piece in pieces:
                writer.write(piece)
                await asyncio.sleep(0.02)
            async with asyncio.timeout(START_SECONDS / 2):
                assert await reader.read() == packet(0x00)
            writer.close()

    asyncio.run(hold())
    (noted,) = [one for one in caplog.records if reason in one.message]
    assert noted.levelname == "WARNING"


def test_a_call_ends_with_the_server() -> None:
    async def hold() -> None:
        port = free_port()
        reader: asyncio.StreamReader
        async with served(audiosocket_port=port):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(UUID)
            await asyncio.sleep(0.1)
        async with asyncio.timeout(PATIENCE):
            assert await reader.read() == b""
        writer.close()

    asyncio.run(hold())


def test_a_port_that_is_taken_is_named(tmp_path: Any) -> None:
    async def hold() -> None:
        taken = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        port = taken.sockets[0].getsockname()[1]
        said = await asyncio.to_thread(
            run_command, "serve", "--port", "0", folder=tmp_path, REJOINDER_AUDIOSOCKET_PORT=str(port)
        )
        taken.close()
        assert said.returncode != 0 and f"audiosocket_port {port}" in " ".join(said.stderr.split())

    asyncio.run(hold())
