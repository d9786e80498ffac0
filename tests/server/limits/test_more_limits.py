"""Limits per address, of audio in a day, of messages and of silence, and who is the client behind a proxy."""

from __future__ import annotations

import asyncio
import json
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.callers.counted import ask, begin
from support.resuming import back, conversation
from support.serving import PATIENCE, Server, Talk, serving
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect

from rejoinder.agent.config import ConfigError, load
from rejoinder.agent.server.keys import hashed
from rejoinder.agent.server.limiting.allowance import MINUTE, Allowance, own_allowances
from rejoinder.agent.server.limiting.limits import MAX_OWNERS, Limits
from rejoinder.agent.server.operating.addresses import grouped, networks
from rejoinder.agent.server.operating.arrivals import BURST_CONNECTS, Arrivals
from rejoinder.agent.server.operating.daily_use import HOUR_SECONDS, HOURS
from rejoinder.agent.server.server import Server as Program
from rejoinder.agent.server.serving import web
from rejoinder.agent.simulate import virtual_clock
from rejoinder.agent.wires.operating.call_limits import BURST_SECONDS, CallLimits
from rejoinder.pipeline import Overloaded

pytestmark = pytest.mark.server

KEY, OTHER = "rj_one", "rj_two"
DAY = HOUR_SECONDS * HOURS


# --- decisions ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("host", "group"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3::4", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("10.1.2.3", ""),
        ("::ffff:10.1.2.3", ""),
        ("2001:db8:9::1", ""),
        ("no address", "no address"),
        ("x" * 1000, "x" * 64),
    ],
)
def test_addresses_are_counted_in_groups(host: str, group: str) -> None:
    assert grouped(host, networks("10.0.0.0/8, 2001:db8:9::/48")) == group


@pytest.mark.parametrize(
    ("proxy", "client"),
    [
        ("127.0.0.1", "198.51.100.1"),
        ("::ffff:127.0.0.1", "198.51.100.1"),
        ("::ffff:192.0.2.9", "198.51.100.1"),
        ("2001:db8::1", "198.51.100.1"),
        ("192.0.3.9", "192.0.3.9"),
        ("::ffff:192.0.3.9", "::ffff:192.0.3.9"),
    ],
)
def test_proxies_are_known_on_sockets_of_both_families(proxy: str, client: str) -> None:
    """As uvicorn reads the setting; ``web`` passes it on."""
    trusted = load({"trusted_proxies": "127.0.0.1, 192.0.2.0/24 2001:db8::/32"})[0]
    program = Program(trusted, lambda *_: None, lambda _: None)
    seen: list[str] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.append(scope["client"][0])

    scope = {"type": "http", "scheme": "http", "client": (proxy, 1)}
    headers = {"headers": [(b"x-forwarded-for", b"198.51.100.1")]}
    middleware = ProxyHeadersMiddleware(app, web(program).forwarded_allow_ips or [])
    asyncio.run(middleware(cast(Any, {**scope, **headers}), cast(Any, None), cast(Any, None)))
    assert seen == [client]


def test_audio_of_a_day_is_limited() -> None:
    limits = Limits(Allowance(audio=100))
    assert limits.hear("a", 60.0, 0.0) is None and limits.hear("a", 40.0, HOUR_SECONDS) is None
    refused = limits.hear("a", 0.02, HOUR_SECONDS + 10.0)
    assert refused is not None and "audio in a day: 100 s" in refused.reason
    assert refused.seconds == DAY - HOUR_SECONDS - 10.0
    assert begin(limits, "a", HOUR_SECONDS + 10.0) is not None, "a call that could not speak does not begin"
    assert limits.hear("b", 60.0, HOUR_SECONDS) is None and limits.hear("", 1000.0, 0.0) is None
    assert limits.hear("a", 60.0, DAY) is None, "the audio of the first hour no longer counts"
    assert limits.hear("a", 1.0, DAY) is not None


@given(st.lists(st.tuples(st.floats(0.0, 5 * HOUR_SECONDS), st.floats(0.01, 60.0)), max_size=60))
def test_audio_never_exceeds_the_limit_in_any_day(pieces: list[tuple[float, float]]) -> None:
    limits, now, taken = Limits(Allowance(audio=100)), 0.0, list[tuple[float, float]]()
    for later, seconds in pieces:
        now += later
        if limits.hear("a", seconds, now) is None:
            taken.append((now, seconds))
        assert sum(used for at, used in taken if now - at < DAY - HOUR_SECONDS) <= 100.0 + 1e-6


def test_key_may_have_its_own_limit_of_audio() -> None:
    own = own_allowances(f"{hashed(KEY)}:1:9:3600 {hashed(OTHER)}:1:9")
    assert own == {hashed(KEY): Allowance(1, 9, 3600), hashed(OTHER): Allowance(1, 9)}


def test_addresses_of_earlier_minutes_are_forgotten() -> None:
    limits = Limits(Allowance(per_minute=5))
    for number in range(MAX_OWNERS):
        ask(limits, str(number), 0.0)
    ask(limits, "late", MINUTE + 1.0)
    assert len(limits._begun) == 1


def test_messages_of_a_call_are_limited() -> None:
    limits = CallLimits(per_second=10)
    for _ in range(int(10 * BURST_SECONDS)):
        limits.count(0.0)
    with pytest.raises(Overloaded, match="more than 10 messages a second"):
        limits.count(0.0)
    limits.count(0.3)
    for at in range(100):
        CallLimits().count(float(at))


def test_silence_of_a_client_is_limited() -> None:
    limits = CallLimits(silent=5.0)
    assert limits.too_silent(100.0) == "" and limits.too_silent(104.9) == ""
    assert limits.too_silent(105.0) == "the client has sent nothing for 5 s"
    limits.count(105.0)
    assert limits.too_silent(109.9) == ""
    assert CallLimits().too_silent(1e9) == ""


@pytest.mark.parametrize("name", ["trusted_proxies", "address_exempt"])
@pytest.mark.parametrize("value", ["*", "10.0.0.1/8", "proxy.example", "10.0.0.0/33"])
def test_networks_that_are_none_get_an_error(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name.replace("_", "-")):
        load({name: value})


# --- the wires ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Loopback is a proxy, and so is 192.0.2.0/24; an address may hold one call."""
    with ExitStack() as stack:
        patch = pytest.MonkeyPatch()
        for name, value in {
            "ADDRESS_SESSIONS": "1",
            "ADDRESS_CALLS_PER_MIN": "3",
            "ADDRESS_EXEMPT": "127.0.0.1",
            "TRUSTED_PROXIES": "127.0.0.1 192.0.2.0/24",
            "MAX_MESSAGES_PER_S": "20",
        }.items():
            patch.setenv(f"REJOINDER_{name}", value)
        running = stack.enter_context(serving(tmp_path_factory.mktemp("limits")))
        patch.undo()  # other servers of this file have settings of their own
        yield running


def behind(*addresses: str) -> dict[str, Any]:
    return {"additional_headers": {"X-Forwarded-For": ", ".join(addresses)}}


def refusal(server: Server, path: str = "/v1/realtime", **options: Any) -> tuple[int, str]:
    with pytest.raises(InvalidStatus) as refused:
        connect(f"ws://127.0.0.1:{server.port}{path}", proxy=None, open_timeout=PATIENCE, **options)
    answer = refused.value.response
    assert int(answer.headers["Retry-After"]) >= 1
    return answer.status_code, answer.body.decode().strip()


def test_address_is_limited_on_every_wire(server: Server) -> None:
    client = behind("198.51.100.1")
    with Talk(server, **client) as talk, Talk(server, **behind("198.51.100.2")):
        for path in ("/v1/realtime", "/v1/pcm", "/v1/phone"):
            status, said = refusal(server, path, **client)
            assert status == 429 and said == "this address has reached its limit of calls at a time: 1"
        with Talk(server), Talk(server):
            pass  # exempt
        assert talk.turn()["status"] == "completed"
    server.wait_idle()


def test_resumed_call_counts_for_its_address(server: Server) -> None:
    client = behind("198.51.100.5")
    with Talk(server, **client) as first:
        conversation(first)
        with back(server, first, **client) as second:
            with pytest.raises(ConnectionClosed):
                while True:
                    first.event()
            assert refusal(server, **client)[0] == 429
            assert second.turn()["status"] == "completed"
    server.wait_idle()
    with Talk(server, **client):
        pass  # a call that has ended does not count
    server.wait_idle()


def test_forged_header_changes_nothing(server: Server) -> None:
    """A proxy appends the address that it sees: the client's own claims stand to the left of it."""
    with Talk(server, **behind("203.0.113.9", "198.51.100.3")):
        assert refusal(server, **behind("198.51.100.3"))[0] == 429
        assert refusal(server, **behind("203.0.113.77", "198.51.100.3", "192.0.2.5"))[0] == 429, "two proxies"
        twice = [("X-Forwarded-For", "203.0.113.78"), ("X-Forwarded-For", "198.51.100.3")]
        assert refusal(server, additional_headers=twice)[0] == 429
        with Talk(server, **behind("203.0.113.9")):
            pass  # whom the first call claimed to be is not counted
    server.wait_idle()


def test_header_of_a_client_that_is_no_proxy_is_ignored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REJOINDER_ADDRESS_SESSIONS", "1")
    monkeypatch.setenv("REJOINDER_TRUSTED_PROXIES", "192.0.2.1")
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "*")  # uvicorn's variable does not override the setting
    with serving(tmp_path) as server, Talk(server, **behind("198.51.100.1")):
        assert refusal(server, **behind("198.51.100.2"))[0] == 429
        assert " began: realtime, no key, 127.0.0.1" in server.log.read_text()


def test_requests_of_an_address_are_limited_too(server: Server) -> None:
    def ask() -> int:
        headers = {"X-Forwarded-For": "198.51.100.4", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{server.http}/v1/realtime/client_secrets", b"{}", headers)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                assert json.load(error)["error"]["code"] == "rate_limit_exceeded"
                assert 1 <= int(error.headers["Retry-After"]) <= MINUTE
                return error.code

    assert [ask() for _ in range(4)] == [200, 200, 200, 429]
    assert refusal(server, **behind("198.51.100.4"))[0] == 429


@pytest.mark.parametrize("path", ["/v1/realtime", "/v1/pcm"])
def test_client_that_floods_a_call_is_closed(server: Server, path: str) -> None:
    with connect(f"ws://127.0.0.1:{server.port}{path}", proxy=None, open_timeout=PATIENCE) as flood:
        with pytest.raises(ConnectionClosed) as closed:
            for _ in range(1000):
                flood.send('{"type": "input_audio_buffer.clear"}')
            while True:
                flood.recv(PATIENCE)
        assert closed.value.rcvd and closed.value.rcvd.code == 1008
        assert closed.value.rcvd.reason == "the client sends more than 20 messages a second"
    server.wait_idle()
    lines = server.log.read_text().splitlines()
    assert sum("sends more than 20 messages" in line for line in lines) == 1 + (path == "/v1/pcm")


def test_call_ends_when_its_key_has_used_its_audio(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REJOINDER_API_KEYS", f"{hashed(KEY)}:0:0:3 {hashed(OTHER)}")
    shown = {"Authorization": f"Bearer {KEY}"}
    reason = "this key has reached its limit of audio in a day: 3 s"
    with serving(tmp_path) as server:
        with Talk(server, additional_headers=shown) as talk:
            assert talk.turn()["status"] == "completed"  # 1.8 s
            talk.speak()
            with pytest.raises(ConnectionClosed) as closed:
                while True:
                    talk.event()
            assert closed.value.rcvd and (closed.value.rcvd.code, closed.value.rcvd.reason) == (1008, reason)
        server.wait_idle()
        with Talk(server, additional_headers={"Authorization": f"Bearer {OTHER}"}) as talk:
            assert talk.turn()["status"] == "completed"
            talk.turn()
        assert f": {reason}" in server.log.read_text()


def test_calls_whose_clients_send_nothing_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REJOINDER_MAX_SILENT_S", "1")
    with serving(tmp_path) as server:
        url = f"ws://127.0.0.1:{server.port}/v1/pcm"
        with Talk(server) as silent, connect(url, proxy=None, open_timeout=PATIENCE) as pcm:
            for receive in (lambda: silent.socket.recv(PATIENCE), lambda: pcm.recv(PATIENCE)):
                with pytest.raises(ConnectionClosed) as closed:
                    while True:
                        receive()
                assert closed.value.rcvd and closed.value.rcvd.reason == "the client has sent nothing for 1 s"
        server.wait_idle()


class Reading:
    """A connection of which only reading matters."""

    def __init__(self, address: str = "192.0.2.1") -> None:
        self.address = address
        self.read_at = asyncio.get_running_loop().time()
        self.closing = self.paused = False

    def get_extra_info(self, name: str) -> tuple[str, int]:
        return (self.address, 5060)

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused, self.read_at = False, asyncio.get_running_loop().time()

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


def test_connections_over_the_rate_wait_and_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REJOINDER_MAX_CONNECTS_PER_S", "20")
    with serving(tmp_path) as server:
        with ExitStack() as stack:
            address, began = ("127.0.0.1", server.port), time.monotonic()
            clients = [
                stack.enter_context(socket.create_connection(address, PATIENCE))
                for _ in range(BURST_CONNECTS + 20)
            ]
            for client in clients:
                client.sendall(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            assert all(client.recv(4096).startswith(b"HTTP/1.1 200 OK") for client in clients)
            assert time.monotonic() - began > 0.9, "20 of them waited for up to a second"
