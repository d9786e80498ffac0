"""New connections at a limited rate: in order, in turn by address, and none holds up another."""

from __future__ import annotations

import asyncio
import socket
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest
from support.serving import PATIENCE, serving

from rejoinder.agent.server.operating.arrivals import BURST_CONNECTS, QUEUE_SECONDS, Arrivals, has_left
from rejoinder.agent.settings.networks import networks
from rejoinder.agent.simulate import virtual_clock


class Reading:
    """A connection of which only reading matters."""

    def __init__(self, address: str = "192.0.2.1") -> None:
        self.address = address
        self.read_at = asyncio.get_running_loop().time()
        self.closing = self.paused = False

    def get_extra_info(self, name: str) -> tuple[str, int] | None:
        return (self.address, 5060) if name == "peername" else None

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused, self.read_at = False, asyncio.get_running_loop().time()

    def is_reading(self) -> bool:
        return not self.paused

    def is_closing(self) -> bool:
        return self.closing

    def abort(self) -> None:
        self.closing = True


def test_flood_of_connections_is_served_at_a_limited_rate_and_in_order() -> None:
    async def main() -> None:
        arrivals, loop = Arrivals(100), asyncio.get_running_loop()
        await asyncio.sleep(10.0)
        began, came = loop.time(), [Reading() for _ in range(250)]
        for each in came:
            arrivals.add(cast(asyncio.Transport, each), each.resume_reading)
        came[100].closing = True
        assert sum(not each.paused for each in came) == BURST_CONNECTS
        await asyncio.sleep(10.0)
        served = [each.read_at - began for each in came if not each.closing]
        assert served == sorted(served) and not any(each.paused for each in came if not each.closing)
        assert 1.9 < served[-1] < 2.1, "200 in two seconds, after a burst of 50"
        arrivals.add(cast(asyncio.Transport, late := Reading()), late.resume_reading)
        assert not late.paused

    virtual_clock.run(main())


def test_a_flood_from_one_address_does_not_keep_another_out() -> None:
    async def main() -> None:
        arrivals, loop = Arrivals(100), asyncio.get_running_loop()
        await asyncio.sleep(10.0)
        began = loop.time()
        for _ in range(1000):
            arrivals.add(cast(asyncio.Transport, each := Reading()), each.resume_reading)
        other = Reading("192.0.2.7")
        arrivals.add(cast(asyncio.Transport, other), other.resume_reading)
        await asyncio.sleep(20.0)
        assert other.read_at - began < 0.05

    virtual_clock.run(main())


def test_a_connection_that_cannot_begin_does_not_hold_up_the_others() -> None:
    async def main() -> None:
        arrivals, loop = Arrivals(100), asyncio.get_running_loop()
        reports: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda loop, context: reports.append(context))
        await asyncio.sleep(10.0)
        came = [Reading() for _ in range(BURST_CONNECTS + 9)]
        wrong = came[BURST_CONNECTS]

        def fail() -> None:
            raise error

        for each in came:
            begin = fail if each is wrong else each.resume_reading
            arrivals.add(cast(asyncio.Transport, each), begin)
        error = RuntimeError("it cannot begin")
        await asyncio.sleep(1.0)
        assert wrong.closing and not any(each.paused for each in came if each is not wrong)
        assert [report["exception"] for report in reports] == [error]

    virtual_clock.run(main())


def test_closed_connections_of_an_address_leave_the_queue_together() -> None:
    async def main() -> None:
        arrivals = Arrivals(1)
        await asyncio.sleep(100.0)
        for address, count in (("192.0.2.1", BURST_CONNECTS + 3), ("192.0.2.2", 100)):
            for _ in range(count):
                arrivals.add(cast(asyncio.Transport, each := Reading(address)), each.resume_reading)
                each.closing = address == "192.0.2.2"
        assert set(arrivals._waiting) == {"192.0.2.1", "192.0.2.2"}
        await asyncio.sleep(1.5)
        assert set(arrivals._waiting) == {"192.0.2.1"}

    virtual_clock.run(main())


def test_under_twice_the_rate_connections_are_dropped_at_once_or_read_soon() -> None:
    async def main() -> None:
        arrivals, loop = Arrivals(10), asyncio.get_running_loop()
        waits, came = list[float](), list[Reading]()
        for _ in range(600):
            came.append(each := Reading("192.0.2.1"))
            began = loop.time()
            arrivals.add(cast(asyncio.Transport, each), lambda began=began: waits.append(loop.time() - began))
            await asyncio.sleep(0.05)
        dropped = sum(each.closing for each in came)
        assert 100 < dropped < 200 and max(waits) < QUEUE_SECONDS + 0.2
        assert len(waits) == pytest.approx(30 * 10 + BURST_CONNECTS, abs=5)

    virtual_clock.run(main())


def test_a_full_queue_drops_the_newest_of_the_address_with_most() -> None:
    async def main() -> None:
        arrivals = Arrivals(10)
        await asyncio.sleep(100.0)
        for _ in range(BURST_CONNECTS):
            arrivals.add(cast(asyncio.Transport, each := Reading("192.0.2.1")), each.resume_reading)
        flood = [Reading("192.0.2.1") for _ in range(90)]
        others = [Reading(f"192.0.2.{number}") for number in range(2, 33)]
        for each in (*flood, *others):
            arrivals.add(cast(asyncio.Transport, each), each.resume_reading)
        assert [each.closing for each in flood] == [False] * 69 + [True] * 21
        assert not any(each.closing for each in others)

    virtual_clock.run(main())


def test_proxies_do_not_wait_and_an_ipv6_network_is_one_address() -> None:
    async def main() -> None:
        arrivals = Arrivals(1, networks("192.0.2.0/24"))
        for _ in range(200):
            arrivals.add(cast(asyncio.Transport, each := Reading()), each.resume_reading)
            assert not (each.paused or each.closing)
        for number in range(BURST_CONNECTS + 2):
            arrivals.add(
                cast(asyncio.Transport, each := Reading(f"2001:db8::{number:x}")), each.resume_reading
            )
        assert set(arrivals._waiting) == {"2001:db8::/64"}

    virtual_clock.run(main())


@pytest.mark.server
def test_connections_over_the_rate_wait_and_are_answered(
    tmp_path: Path,
) -> None:
    with serving(tmp_path, max_connects_per_s="20") as server:
        with ExitStack() as stack:
            address, began = ("127.0.0.1", server.port), time.monotonic()
            clients = [
                stack.enter_context(socket.create_connection(address, PATIENCE, ("127.0.1.1", 0)))
                for _ in range(BURST_CONNECTS + 20)
            ]
            for client in clients:
                client.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            assert all(client.recv(4096).startswith(b"HTTP/1.1 200 OK") for client in clients)
            assert time.monotonic() - began > 0.9, "20 of them waited for up to a second"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the state of a connection")
def test_connections_that_have_left_take_no_turn() -> None:
    """Real sockets, in virtual time."""

    class Connected(Reading):
        """A connection with a socket. ours: the server's end."""

        def __init__(self, ours: socket.socket) -> None:
            super().__init__()
            self.ours = ours

        def get_extra_info(self, name: str) -> Any:
            return self.ours if name == "socket" else super().get_extra_info(name)

    async def main() -> None:
        arrivals = Arrivals(1.0)
        with ExitStack() as stack:
            listening = stack.enter_context(socket.create_server(("127.0.0.1", 0)))
            clients, waiting = [], []
            for number in range(BURST_CONNECTS + 9):
                clients.append(stack.enter_context(socket.create_connection(listening.getsockname())))
                waiting.append(one := Connected(stack.enter_context(listening.accept()[0])))
                arrivals.add(cast(asyncio.Transport, one), one.resume_reading)
                assert one.paused == (number >= BURST_CONNECTS)
            for client in clients[BURST_CONNECTS:-1]:
                client.close()
            await asyncio.sleep(1.5)
            assert not waiting[-1].paused, "the one that is left has the next turn"
            assert all(one.closing and one.paused for one in waiting[BURST_CONNECTS:-1])
            pair = [stack.enter_context(each) for each in socket.socketpair()]
            unknown = Connected(pair[0])
            assert not has_left(cast(asyncio.Transport, unknown)), "its state cannot be asked for"

    virtual_clock.run(main())
