"""What systemd is notified of: a server that is ready, alive, and stopping."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from queue import Empty, SimpleQueue

import pytest
from support.servers.faults import until
from support.serving import PATIENCE, Talk, begin_to_end, serving

from rejoinder.agent.server.operating.systemd import Notifier


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[tuple[socket.socket, str]]:
    """Yield systemd's end of the notifications, and its address."""
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ours:
        ours.bind(address)
        ours.settimeout(PATIENCE)
        yield ours, address


def send(address: str, text: bytes) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.sendto(text, address)


@contextmanager
def received(ours: socket.socket, address: str) -> Iterator[SimpleQueue[str]]:
    """Read at all times: the kernel keeps ten notifications, and the server does not wait for room."""
    ours.settimeout(None)
    sent: SimpleQueue[str] = SimpleQueue()

    def read() -> None:
        while text := ours.recv(4096).decode():
            sent.put(text)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        yield sent
    finally:
        send(address, b"")
        reader.join()


def read_until(sent: SimpleQueue[str], line: str) -> list[str]:
    """Receive notifications until one has this line; return the lines of all of them."""
    came: list[str] = []
    while line not in (lines := sent.get(timeout=2 * PATIENCE).splitlines()):
        came.extend(lines)
    return came + lines


@pytest.mark.server
def test_systemd_learns_that_the_server_is_ready_alive_and_stopping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, systemd: tuple[socket.socket, str]
) -> None:
    ours, address = systemd
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    monkeypatch.setenv("WATCHDOG_USEC", "300000")
    came: list[str] = []

    def get(line: str) -> None:
        came.extend(read_until(sent, line))

    with ExitStack() as stack:
        sent = stack.enter_context(received(ours, address))
        server = stack.enter_context(serving(tmp_path, drain_s="600"))
        get("READY=1")
        get("STATUS=ready")
        for _ in range(3):
            get("WATCHDOG=1")
        with Talk(server):
            begin_to_end(server)
            get("STOPPING=1")
            assert int(came[-1].removeprefix("EXTEND_TIMEOUT_USEC=")) > 600_000_000
            get("WATCHDOG=1")
    assert came.count("READY=1") == 1


BLOCKING_AGENT = """
import time
from pathlib import Path
from rejoinder import Agent

agent = Agent("You are brief.")

@agent.on_call
async def block(call):
    Path("blocked").touch()
    while not Path("go").exists():
        time.sleep(0.01)
"""


@pytest.mark.server
def test_pings_stop_while_the_event_loop_is_blocked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, systemd: tuple[socket.socket, str]
) -> None:
    """systemd has to restart a server that answers no caller, even if its other threads still run."""
    ours, address = systemd
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    monkeypatch.setenv("WATCHDOG_USEC", "300000")  # a ping each 0.1 s
    (tmp_path / "desk.py").write_text(BLOCKING_AGENT)
    with received(ours, address) as sent, serving(tmp_path, agent=str(tmp_path / "desk.py")) as server:
        read_until(sent, "STATUS=ready")
        read_until(sent, "WATCHDOG=1")
        with Talk(server, greeted=False) as talk:
            try:
                until((tmp_path / "blocked").exists, "the loop was not blocked")
                send(address, b"MARK=1")  # behind everything that the server has sent before
                read_until(sent, "MARK=1")
                with pytest.raises(Empty):
                    sent.get(timeout=1.0)  # ten pings
            finally:
                (tmp_path / "go").touch()
            for _ in range(3):
                read_until(sent, "WATCHDOG=1")
            talk.until("conversation.created")
            assert talk.turn()["status"] == "completed"


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
    assert not notifier.send(READY="1") and not notifier.send(READY="1")
    notifier.close()
    assert [record.getMessage() for record in caplog.records] == [
        "cannot notify systemd: No such file or directory"
    ]


def test_systemd_that_is_late_learns_of_the_end_nevertheless(systemd: tuple[socket.socket, str]) -> None:
    """Without it, systemd kills the server before the calls have ended."""
    ours, address = systemd
    notifier = Notifier({"NOTIFY_SOCKET": address})
    while notifier.send(STATUS="ready"):
        pass
    notifier.stopping(1.5)

    async def read() -> list[str]:
        loop = asyncio.get_running_loop()
        running = loop.create_task(notifier.run(lambda: True, lambda: "draining"))
        ours.setblocking(False)
        async with asyncio.timeout(PATIENCE):
            while "STOPPING=1" not in (lines := (await loop.sock_recv(ours, 4096)).decode().splitlines()):
                pass
        running.cancel()
        return lines

    assert asyncio.run(read()) == ["STOPPING=1", "EXTEND_TIMEOUT_USEC=1500000"]
    notifier.close()


def test_notification_to_an_abstract_socket() -> None:
    name = f"rejoinder-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ours:
        ours.bind(f"\0{name}")
        ours.settimeout(PATIENCE)
        notifier = Notifier({"NOTIFY_SOCKET": f"@{name}"})
        notifier.stopping(1.5)
        assert ours.recv(4096).decode().splitlines() == ["STOPPING=1", "EXTEND_TIMEOUT_USEC=1500000"]
        notifier.close()
