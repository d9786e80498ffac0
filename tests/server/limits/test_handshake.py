"""Refused handshakes and a shortage of descriptors, on real sockets beside a call."""

from __future__ import annotations

import http.client
import resource
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from support.scrambled.handshakes import HEAD, ODD, PLAIN
from support.serving import BLOCKED, PATIENCE, Server, Talk, serving

REFUSED = {name: (odd, status) for name, (odd, status) in ODD.items() if status != 101}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with serving(tmp_path_factory.mktemp("server"), resume_s="0.5") as running:
        yield running


def connected(server: Server, said: bytes = b"") -> socket.socket:
    client = socket.create_connection(("127.0.0.1", server.port), PATIENCE)
    client.sendall(said)
    return client


def read(client: socket.socket) -> bytes:
    """Return all that comes until the server closes."""
    said = b""
    while piece := client.recv(2**16):
        said += piece
    return said


@pytest.mark.parametrize("name", REFUSED)
def test_handshake_that_is_refused_is_answered_logged_and_closed(server: Server, name: str) -> None:
    odd, status = REFUSED[name]
    before = len(server.log.read_text().splitlines())
    with connected(server, HEAD + odd + b"\r\n") as client:
        answer = read(client)
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    (line,) = [line for line in server.log.read_text().splitlines()[before:] if BLOCKED not in line]
    assert f"({status})" in line and answer.partition(b"\r\n\r\n")[2].decode().strip() in line


def test_answer_arrives_while_the_client_is_still_sending(server: Server) -> None:
    """A socket that is closed with unread bytes in it resets the connection, and the answer is lost."""
    with connected(server) as client:
        client.sendall(HEAD + b"Cookie: " + b"x" * 2**20)
        assert b"431 Request Header Fields Too Large" in read(client)


def test_request_with_two_lengths_is_answered_once(server: Server) -> None:
    smuggled = b"0\r\n\r\nGET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
    both = b"Content-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n" % len(smuggled)
    with connected(server, PLAIN + both + smuggled) as client:
        answer = read(client)
    assert answer.startswith(b"HTTP/1.1 400 ") and b"Connection: close" in answer
    assert answer.count(b"HTTP/1.1") == 1


def warnings(server: Server) -> list[str]:
    """Return the lines of the log but for those of calls."""
    lines = server.log.read_text().splitlines()
    return [line for line in lines if " INFO " not in line and BLOCKED not in line]


def test_server_without_descriptors_logs_a_line_and_takes_calls_again_when_there_are_some(
    tmp_path: Path,
) -> None:
    """Calls hold all descriptors. One more waits until the first of them is over."""
    with serving(tmp_path, max_sessions="100", resume_s="0") as server:
        before = len(warnings(server))
        room = psutil.Process(server.process.pid).num_fds() + 8
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (room, room))
        held = []
        while len(warnings(server)) == before:
            held.append(connected(server, HEAD + b"\r\n"))
            assert len(held) < 1000
        waiting = connected(server, b"GET /healthz HTTP/1.0\r\n\r\n")
        for client in held:
            client.close()
        assert b"HTTP/1.1 200" in read(waiting)
        waiting.close()
        server.wait_idle()
        (line,) = warnings(server)[before:]
        assert "Too many open files" in line and "ulimit -n" in line


def test_idle_connections_are_dropped_in_a_shortage_of_descriptors(tmp_path: Path) -> None:
    with serving(tmp_path, resume_s="0") as server:
        room = psutil.Process(server.process.pid).num_fds() + 20
        with Talk(server) as talk:
            resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (room, room))
            silent = [connected(server) for _ in range(40)]
            assert server.get("/healthz")["sessions"] == 1, "within the 5 s for which it is waited for"
            assert talk.turn()["status"] == "completed"
            for client in silent:
                client.close()
        server.wait_idle()


def test_many_handshakes_that_are_refused_leave_nothing_open(server: Server) -> None:
    process = psutil.Process(server.process.pid)
    before = process.num_fds()
    for odd, _ in list(REFUSED.values()) * 20:
        with connected(server, HEAD + odd + b"\r\n") as client:
            assert read(client)
    deadline = time.monotonic() + PATIENCE
    while process.num_fds() > before:
        assert time.monotonic() < deadline, "a socket stayed behind"
        time.sleep(0.05)


def test_plain_request_to_a_socket_path_shows_whether_cookies_fit(server: Server) -> None:
    statuses = []
    for size in (8000, 9000):
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
        connection.request("GET", "/v1/realtime", headers={"Cookie": "x" * size})
        answer = connection.getresponse()
        statuses.append(answer.status)
        said = answer.read().decode()
        connection.close()
    assert statuses == [426, 431] and "clear the cookies" in said
