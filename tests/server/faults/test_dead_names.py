"""A name server that dies under a running server."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from support.ports import unused_port
from support.servers.faults import metric
from support.servers.faulty import WORDS, faulty_server
from support.serving import PATIENCE, Server, Talk, serving

from rejoinder.agent.server.operating.lookups import MOST_LOOKUPS
from rejoinder.agent.server.operating.server_loop import ServerLoop

NAMES = "127.0.7.53"
"""The address of the name server."""
CALLERS = 8
"""More than asyncio has threads on a machine with two cores."""
IN_MOUNTS = ("unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/resolv.conf && exec "$@"')
"""Runs a command with a file in the place of /etc/resolv.conf, which needs root."""
CONFIGURATION = """
[models.far]
url = "http://chat.example:{far}/v1"
model = "m"
first_token_s = 0.5

[models.near]
url = "{near}"
model = "m"
"""


def asked(server: Server) -> str:
    """Ask in a call of its own, and return the words of the answer."""
    with Talk(server) as talk:
        talk.send("response.create", response={"output_modalities": ["text"]})
        response: dict[str, Any] = talk.until("response.done")["response"]
        return str(response["output"][0]["content"][0]["text"]).strip() if response["output"] else ""


@contextmanager
def name_server() -> Iterator[threading.Event]:
    """Say that every name is 127.0.0.1, until the event is set: then take questions, and be silent."""
    dead, over = threading.Event(), threading.Event()

    def answer(names: socket.socket) -> None:
        while not over.is_set():
            with suppress(TimeoutError):
                question, client = names.recvfrom(512)
                if not dead.is_set():
                    names.sendto(address(question), client)

    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as names:
        names.bind((NAMES, 53))
        names.settimeout(0.1)
        thread = threading.Thread(target=answer, args=(names,))
        thread.start()
        try:
            yield dead
        finally:
            over.set()
            thread.join()


def address(question: bytes) -> bytes:
    """Answer a DNS question for an IPv4 address with 127.0.0.1, and others with nothing (RFC 1035, 4.1)."""
    end = question.index(b"\0", 12) + 5  # the name, its type and its class
    is_ipv4 = question[end - 4 : end - 2] == b"\0\1"
    record = b"\xc0\x0c\0\1\0\1" + bytes(4) + b"\0\4" + socket.inet_aton("127.0.0.1")
    header = question[:2] + b"\x81\x80\0\1" + bytes([0, is_ipv4]) + bytes(4)
    return header + question[12:end] + record * is_ipv4


@pytest.mark.server
def test_callers_are_answered_by_the_model_that_has_an_address(tmp_path: Path) -> None:
    resolv = tmp_path / "resolv.conf"
    resolv.write_text(f"nameserver {NAMES}\n")
    within = (*IN_MOUNTS, str(resolv))
    if sys.platform != "linux" or os.geteuid() or subprocess.run([*within, "true"], check=False).returncode:
        pytest.skip("a name server can only be replaced by root, on Linux")
    with (
        name_server() as dead,
        faulty_server(unused_port()) as far,
        faulty_server(unused_port()) as near,
    ):
        (tmp_path / "rejoinder.toml").write_text(CONFIGURATION.format(far=far.port, near=near.url))
        with serving(tmp_path, llm="far near", within=within) as server:
            assert asked(server) == WORDS
            known = len(far.seen), len(near.seen)
            assert known[0] > 0
            dead.set()
            with ThreadPoolExecutor(CALLERS) as callers:
                answers = list(callers.map(lambda _: asked(server), range(CALLERS)))
            assert answers == [WORDS] * CALLERS
            assert (len(far.seen), len(near.seen)) == (known[0], known[1] + CALLERS)
            assert "far is not asked any more" in server.log.read_text()
            assert metric(server, "llm_rescues_total") >= 1


def test_names_without_an_answer_hold_up_no_other_work(monkeypatch: pytest.MonkeyPatch) -> None:
    answered, waiting = threading.Event(), threading.Semaphore(0)

    def never(*_: object) -> list[Any]:
        waiting.release()
        answered.wait()
        return []

    async def work() -> None:
        loop = asyncio.get_running_loop()
        lookups = [loop.create_task(loop.getaddrinfo("chat.example", 80)) for _ in range(MOST_LOOKUPS)]
        for _ in lookups:
            assert await asyncio.to_thread(waiting.acquire, timeout=PATIENCE), "a lookup has not begun"
        assert await asyncio.to_thread(lambda: "done") == "done"
        answered.set()
        assert await asyncio.gather(*lookups) == [[]] * MOST_LOOKUPS

    monkeypatch.setattr(socket, "getaddrinfo", never)
    try:
        with asyncio.Runner(loop_factory=ServerLoop) as runner:
            runner.run(asyncio.wait_for(work(), PATIENCE))
    finally:
        answered.set()


HANGING = """
import asyncio, socket, threading
from rejoinder.agent.server.operating.server_loop import ServerLoop

async def main():
    loop = asyncio.get_running_loop()
    lookup = loop.create_task(loop.getaddrinfo("chat.example", 80))
    await asyncio.to_thread(begun.wait)
    lookup.cancel()
    await asyncio.wait([lookup])
    print(lookup.cancelled())

begun = threading.Event()
socket.getaddrinfo = lambda *_: (begun.set(), threading.Event().wait())
with asyncio.Runner(loop_factory=ServerLoop) as runner:
    runner.run(main())
"""


def test_a_name_without_an_answer_does_not_keep_the_program_from_ending() -> None:
    ended = subprocess.run([sys.executable, "-c", HANGING], capture_output=True, text=True, timeout=PATIENCE)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "True\n", "")
