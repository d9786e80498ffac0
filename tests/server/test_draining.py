"""SIGTERM: no new calls, time and a goodbye for those in progress; and what systemd gets to know."""

from __future__ import annotations

import json
import os
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
from support.serving import PATIENCE, THREE_LINES, Server, Talk, unused_port
from support.serving import patiently as serving
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from rejoinder.agent.operating_settings import DRAIN_GOODBYE
from rejoinder.agent.server.operating.draining import RETRY_SECONDS, Drain
from rejoinder.agent.server.operating.systemd import Notifier
from rejoinder.agent.wires.audiosocket.protocol import HANG_UP_PACKET, UUID_PACKET, packet
from rejoinder.agent.wires.operating.departure import SERVICE_RESTART, SHUTTING_DOWN

pytestmark = pytest.mark.server

AUDIO = packet(0x10, bytes(320))


@contextmanager
def draining(folder: Path, monkeypatch: pytest.MonkeyPatch, **settings: str) -> Iterator[Server]:
    """Serve with settings of the drain; its end must be orderly and leave a clean log."""
    for name, value in settings.items():
        monkeypatch.setenv(f"REJOINDER_{name.upper()}", value)
    with serving(folder, llm=THREE_LINES, resume_s="0") as server:
        yield server


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def status(server: Server) -> tuple[int, str]:
    try:
        return 200, server.get("/readyz")["status"]
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)["status"]


def terminate(server: Server) -> None:
    """Send SIGTERM, and wait until the server drains."""
    server.process.send_signal(signal.SIGTERM)
    until(lambda: status(server)[0] == 503)


def last(talk: Talk) -> ConnectionClosed:
    """Read events until the server closes."""
    with pytest.raises(ConnectionClosed) as closed:
        while True:
            talk.event()
    return closed.value


def test_server_without_calls_ends_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with draining(tmp_path, monkeypatch, drain_s="600") as server:
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(PATIENCE) == 0


def test_call_in_progress_goes_on_and_new_ones_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On all wires; the server ends as soon as the call does."""
    port = unused_port()
    with draining(tmp_path, monkeypatch, drain_s="600", audiosocket_port=str(port)) as server:
        with Talk(server) as talk:
            talk.turn()
            terminate(server)
            assert status(server) == (503, f"{SHUTTING_DOWN}: call again in a moment")
            for path in ("/v1/realtime", "/v1/pcm", "/v1/phone"):
                with pytest.raises(InvalidStatus) as refused:
                    connect(f"ws://127.0.0.1:{server.port}{path}", proxy=None, open_timeout=PATIENCE)
                answer = refused.value.response
                assert (answer.status_code, answer.headers["Retry-After"]) == (503, str(RETRY_SECONDS))
                assert SHUTTING_DOWN.encode() in answer.body
            origin: Any = f"http://127.0.0.1:{server.port}"
            with Talk(server, greeted=False, origin=origin) as page:
                closed = last(page)
                assert closed.rcvd and closed.rcvd.code == 1013 and SHUTTING_DOWN in closed.rcvd.reason
            with socket.create_connection(("127.0.0.1", port), PATIENCE) as line:
                line.sendall(packet(UUID_PACKET, bytes(16)) + AUDIO)
                said = b""
                while piece := line.recv(4096):
                    said += piece
            assert said.endswith(packet(HANG_UP_PACKET))
            with pytest.raises(urllib.error.HTTPError) as error:
                urllib.request.urlopen(
                    f"{server.http}/v1/chat/completions", b'{"messages": []}', timeout=PATIENCE
                )
            with error.value as response:
                assert (response.code, response.headers["Retry-After"]) == (503, str(RETRY_SECONDS))
                assert json.load(response)["error"]["code"] == "shutting_down"
            assert talk.turn()["status"] == "completed", "the call in progress goes on"
        assert server.process.wait(PATIENCE) == 0
        log = server.log.read_text()
        refusals = [line for line in log.splitlines() if " was refused" in line]
        assert len(refusals) == 6 and all(SHUTTING_DOWN in line for line in refusals)
        assert "draining: 1 calls in progress have 600 s to end" in log and "drained: all calls" in log


def test_new_calls_are_sent_to_another_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients that follow redirects, as websockets does, call there; the others read the address."""
    (tmp_path / "other").mkdir()
    with serving(tmp_path / "other") as other:
        url = f"ws://127.0.0.1:{other.port}"
        with draining(tmp_path, monkeypatch, drain_s="600", drain_url=url) as server:
            with Talk(server):
                terminate(server)
                with Talk(server) as moved:
                    assert other.sessions() == 1
                    assert moved.turn()["status"] == "completed"
            assert server.process.wait(PATIENCE) == 0


def test_location_has_the_path_and_the_query() -> None:
    drain = Drain(1.0, "", "wss://b.example/voice/")
    assert drain.location("/v1/pcm", "rate=8000") == "", "while calls are taken"
    drain.begin()
    assert drain.location("/v1/pcm", "rate=8000") == "wss://b.example/voice/v1/pcm?rate=8000"
    assert drain.location("/v1/phone", "") == "wss://b.example/voice/v1/phone"
    assert drain.reason.endswith(": call wss://b.example/voice/")


def test_calls_that_do_not_end_hear_a_goodbye(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with draining(tmp_path, monkeypatch, drain_s="0.2") as server:
        with (
            Talk(server) as silent,
            Talk(server) as speaking,
            connect(
                f"ws://127.0.0.1:{server.port}/v1/pcm",
                proxy=None,
                open_timeout=PATIENCE,
                ping_interval=None,  # it is read late
            ) as pcm,
        ):
            speaking.speak()
            speaking.until("response.created")
            server.process.send_signal(signal.SIGTERM)
            for talk in (silent, speaking):
                closed = last(talk)
                assert closed.rcvd and (closed.rcvd.code, closed.rcvd.reason) == (
                    SERVICE_RESTART,
                    SHUTTING_DOWN,
                )
                spoken = [e["transcript"] for e in talk.seen if e["type"].endswith("audio_transcript.done")]
                assert spoken[-1] == DRAIN_GOODBYE
                done = [
                    event["response"]["status"] for event in talk.seen if event["type"] == "response.done"
                ]
                assert done[-1] == "completed", "it is heard to its end"
            heard = 0
            with pytest.raises(ConnectionClosed) as over:
                while True:
                    message = pcm.recv(PATIENCE)
                    heard += len(message) if isinstance(message, bytes) else 0
            assert heard > 24_000 and over.value.rcvd and over.value.rcvd.code == SERVICE_RESTART
        assert server.process.wait(PATIENCE) == 0
        ended = [line for line in server.log.read_text().splitlines() if " ended: " in line]
        assert len(ended) == 3 and all(line.endswith(f": {SHUTTING_DOWN}") for line in ended)


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_second_signal_ends_the_server_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, second: int
) -> None:
    with draining(tmp_path, monkeypatch, drain_s="600") as server, Talk(server) as talk:
        terminate(server)
        server.process.send_signal(second)
        closed = last(talk)
        assert closed.rcvd and (closed.rcvd.code, closed.rcvd.reason) == (SERVICE_RESTART, SHUTTING_DOWN)
        assert server.process.wait(PATIENCE) == 0


def test_interrupt_from_the_keyboard_ends_the_server_without_a_drain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with draining(tmp_path, monkeypatch, drain_s="600") as server, Talk(server) as talk:
        server.process.send_signal(signal.SIGINT)
        assert last(talk).rcvd
        assert server.process.wait(PATIENCE) == 0


# --- systemd ------------------------------------------------------------------------------------------------


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """Yield systemd's end of the notifications, and its address."""
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as mine:
        mine.bind(address)
        mine.settimeout(PATIENCE)
        yield mine, address


def test_systemd_learns_that_the_server_is_ready_alive_and_stopping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, systemd: tuple[socket.socket, str]
) -> None:
    mine, address = systemd
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    monkeypatch.setenv("WATCHDOG_USEC", "300000")
    mine.settimeout(None)
    sent: SimpleQueue[str] = SimpleQueue()
    came: list[str] = []

    def read() -> None:
        """Read at all times: the kernel keeps ten notifications, and the server does not wait for room."""
        while text := mine.recv(4096).decode():
            sent.put(text)

    def get(line: str) -> None:
        """Receive notifications until one has this line."""
        while line not in (lines := sent.get(timeout=120).splitlines()):
            came.extend(lines)
        came.extend(lines)

    with ExitStack() as stack:
        reader = threading.Thread(target=read)
        reader.start()
        stack.callback(reader.join)
        stack.callback(end_reading, address)
        server = stack.enter_context(draining(tmp_path, monkeypatch, drain_s="600"))
        get("READY=1")
        assert came[-2:] == ["STATUS=ready", "READY=1"]
        for _ in range(3):
            get("WATCHDOG=1")
        with Talk(server):
            terminate(server)
            get("STOPPING=1")
            assert int(came[-1].removeprefix("EXTEND_TIMEOUT_USEC=")) > 600_000_000
            get("WATCHDOG=1")
    assert came.count("READY=1") == 1


def end_reading(address: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.sendto(b"", address)


def test_watchdog_of_another_process_gets_no_pings(systemd: tuple[socket.socket, str]) -> None:
    _, address = systemd
    about = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "2000000"}
    for pid, seconds in ((str(os.getpid()), 2.0), ("1", 0.0)):
        notifier = Notifier({**about, "WATCHDOG_PID": pid})
        assert notifier.watchdog == seconds
        notifier.close()
    assert Notifier({"WATCHDOG_USEC": "2000000"}).watchdog == 0.0, "there is no socket for pings"


def test_notification_to_a_socket_that_is_gone_does_no_harm(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    notifier = Notifier({"NOTIFY_SOCKET": str(tmp_path / "none")})
    notifier.send(READY="1")
    notifier.send(READY="1")
    assert [record.getMessage() for record in caplog.records] == [
        "cannot notify systemd: No such file or directory"
    ]


def test_notification_to_an_abstract_socket() -> None:
    name = f"rejoinder-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as mine:
        mine.bind(f"\0{name}")
        mine.settimeout(PATIENCE)
        notifier = Notifier({"NOTIFY_SOCKET": f"@{name}"})
        notifier.send(STATUS="loading models")
        assert mine.recv(4096) == b"STATUS=loading models"
        notifier.close()
