"""Silent connections beside a real call, and close reasons that are too long, on real sockets."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.serving import PATIENCE, Server, Talk, serving
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from rejoinder.agent.server.connection import (
    LONG_MESSAGE,
    REASON_BYTES,
    SocketConnection,
    fitting,
    is_long,
    up_to_the_end,
)
from rejoinder.agent.server.frames import Portions
from rejoinder.agent.settings.operating import HANDSHAKE_SECONDS
from rejoinder.agent.wires.long_messages import Long
from rejoinder.agent.wires.transport import FRAMES

MANY = 1000
HANDSHAKE = (
    b"GET /v1/realtime HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n\r\n"
)


@contextmanager
def sockets(server: Server, said: bytes, count: int = MANY) -> Iterator[list[socket.socket]]:
    """Open ``count`` connections that send only these bytes."""
    with ExitStack() as stack:
        clients = []
        for _ in range(count):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), PATIENCE))
            client.sendall(said)
            clients.append(client)
        yield clients


def until(client: socket.socket, word: bytes) -> bytes:
    """Read until a word has come."""
    read = b""
    while word not in read:
        piece = client.recv(4096)
        assert piece, f"closed after {read!r}"
        read += piece
    return read


def test_caller_is_answered_beside_a_thousand_silent_calls(tmp_path: Path) -> None:
    # Beside other tests a thousand handshakes take longer than the default of handshake_s.
    with serving(tmp_path, max_sessions=str(MANY + 1), resume_s="0.5", handshake_s="300") as server:
        with Talk(server) as talk:
            assert talk.turn()["status"] == "completed"
            before = server.memory()
            with sockets(server, HANDSHAKE) as silent:
                for client in silent:
                    until(client, b"session.created")
                assert server.sessions() == MANY + 1
                assert server.memory() - before < MANY * 200_000, "bytes for each, with scripted models"
                assert talk.turn()["status"] == "completed"
                with sockets(server, HANDSHAKE, 1) as (more,):
                    assert b"lines are busy" in until(more, b"busy")
        server.wait_idle()


def test_calls_beyond_the_last_line_are_refused_with_a_reason(tmp_path: Path) -> None:
    with serving(tmp_path, max_sessions="1") as server:
        with Talk(server) as talk:
            with sockets(server, HANDSHAKE) as refused:
                for client in refused:
                    assert b"all 1 lines are busy" in until(client, b"busy")
                assert server.sessions() == 1
                assert talk.turn()["status"] == "completed"
        server.wait_idle()


def test_connections_without_a_request_are_dropped(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        with sockets(server, b"", MANY // 2) as silent, sockets(server, HANDSHAKE[:60], MANY // 2) as halves:
            with Talk(server) as talk:
                assert talk.turn()["status"] == "completed"
                talk.append(bytes(960))
                for client in (*silent, *halves):
                    client.settimeout(HANDSHAKE_SECONDS + PATIENCE)
                    with suppress(ConnectionResetError):
                        assert client.recv(1) == b""
                talk.send("session.update", session={})
                talk.until("session.updated")
        server.wait_idle()


def test_server_raises_the_limit_of_open_files(tmp_path: Path) -> None:
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, before[1]))
    try:
        with serving(tmp_path) as server:
            assert psutil.Process(server.process.pid).rlimit(resource.RLIMIT_NOFILE) == (before[1], before[1])
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


# --- reasons --------------------------------------------------------------------------------------------


@given(st.text() | st.text("😀\ud800é", max_size=80))
def test_reason_fits_into_its_frame(reason: str) -> None:
    told = fitting(reason)
    assert len(told.encode()) <= REASON_BYTES
    if len(reason.encode("utf-8", "replace")) <= REASON_BYTES:
        assert told == reason.encode("utf-8", "replace").decode()


def test_carrier_gets_an_error_for_invalid_messages(tmp_path: Path) -> None:
    with serving(tmp_path) as server:
        url = f"ws://127.0.0.1:{server.port}/v1/phone"
        for event, told in (("😀" * 40, "😀" * 30), ("\ud800", "? before the start"), ("é" * 100, "é" * 30)):
            with connect(url, proxy=None) as call:
                call.send(json.dumps({"event": event}))
                with pytest.raises(ConnectionClosed) as closed:
                    call.recv(timeout=PATIENCE)
            assert closed.value.rcvd is not None and closed.value.rcvd.code == 1008
            assert closed.value.rcvd.reason.startswith(told)


def test_messages_before_a_close_are_taken_in_order() -> None:
    said = [{"type": "websocket.receive", "text": text} for text in ("a", "b")]
    ends = [{"type": "websocket.disconnect", "code": code} for code in (1006, 1005)]
    messages: Any = [*said, *ends]
    assert up_to_the_end(messages) == (said, ends), "the first one tells why: the line broke"
    assert up_to_the_end(messages[:2]) == (said, []) and up_to_the_end([]) == ([], [])


def test_minutes_of_audio_are_long_and_frames_are_not() -> None:
    assert is_long("x" * (LONG_MESSAGE + 1)) and is_long(Long()) and not is_long("x" * 900)
    assert not is_long(bytes(640))


class Transport:
    """What a connection is read from: it only notes that reading goes on."""

    reading = False

    def resume_reading(self) -> None:
        self.reading = True


@pytest.mark.parametrize("size", [900, LONG_MESSAGE + 1])
def test_reading_goes_on_after_a_long_message(size: int) -> None:
    """While minutes of audio are heard a client's pings want an answer; behind a frame nothing is read."""
    connection: Any = SocketConnection.__new__(SocketConnection)
    connection.queue, connection.transport, connection.read_paused = asyncio.Queue(), Transport(), True
    connection.handshake_complete, connection._came = True, Portions(LONG_MESSAGE)
    for text in ("x" * size, "commit"):
        message = {"type": "websocket.receive", "text": text, FRAMES: [text]}
        connection.queue.put_nowait(message)
    message = asyncio.run(connection.receive())
    assert message[FRAMES] == [message["text"], "commit"], "what is here already is taken together"
    assert connection.transport.reading == (size > LONG_MESSAGE)
