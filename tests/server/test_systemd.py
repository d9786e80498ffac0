"""What systemd is notified of: a server that is ready, alive, and stopping."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from queue import SimpleQueue

import pytest
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


def end_reading(address: str) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as other:
        other.sendto(b"", address)


@pytest.mark.server
def test_systemd_learns_that_the_server_is_ready_alive_and_stopping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, systemd: tuple[socket.socket, str]
) -> None:
    ours, address = systemd
    monkeypatch.setenv("NOTIFY_SOCKET", address)
    monkeypatch.setenv("WATCHDOG_USEC", "300000")
    ours.settimeout(None)
    sent: SimpleQueue[str] = SimpleQueue()
    came: list[str] = []

    def read() -> None:
        """Read at all times: the kernel keeps ten notifications, and the server does not wait for room."""
        while text := ours.recv(4096).decode():
            sent.put(text)

    def get(line: str) -> None:
        """Receive notifications until one has this line."""
        while line not in (lines := sent.get(timeout=2 * PATIENCE).splitlines()):
            came.extend(lines)
        came.extend(lines)

    with ExitStack() as stack:
        reader = threading.Thread(target=read)
        reader.start()
        stack.callback(reader.join)
        stack.callback(end_reading, address)
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


def test_notification_to_an_abstract_socket() -> None:
    name = f"rejoinder-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ours:
        ours.bind(f"\0{name}")
        ours.settimeout(PATIENCE)
        notifier = Notifier({"NOTIFY_SOCKET": f"@{name}"})
        notifier.stopping(1.5)
        assert ours.recv(4096).decode().splitlines() == ["STOPPING=1", "EXTEND_TIMEOUT_USEC=1500000"]
        notifier.close()
