"""Limits of two real servers with one Redis: a server that is killed, and a Redis that is killed or hangs."""

from __future__ import annotations

import json
import os
import signal
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from support.servers.faults import metric, until
from support.servers.redis import RedisServer, redis_server
from support.serving import Server, Talk, serving
from websockets.exceptions import InvalidStatus

from rejoinder.agent.server.keys import PROTOCOL, hashed
from rejoinder.agent.server.limiting.redis_counters import LEASE_S
from rejoinder.agent.server.limiting.shared_limits import STORE_AWAY_SECONDS

pytestmark = pytest.mark.scale
KEY = "rj_one"
SHOWN = {"Authorization": f"Bearer {KEY}"}


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[RedisServer]:
    with redis_server(tmp_path) as server:
        yield server


@pytest.fixture
def environment(redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setenv("REJOINDER_LIMITS_STORE", redis.url)
    monkeypatch.setenv("REJOINDER_API_KEYS", hashed(KEY))
    monkeypatch.setenv("REJOINDER_KEY_SESSIONS", "2")
    return monkeypatch


def two_servers(stack: ExitStack, tmp_path: Path) -> tuple[Server, Server]:
    folders = [tmp_path / name for name in ("one", "other")]
    for folder in folders:
        folder.mkdir()
    one, other = (stack.enter_context(serving(folder, clean=False)) for folder in folders)
    return one, other


def refused(server: Server) -> tuple[int, str, str]:
    """Call, and return the refusal: its status, ``Retry-After`` and reason; 101 for a call that begins."""
    try:
        with server.call(additional_headers=SHOWN):
            return 101, "", ""
    except InvalidStatus as refusal:
        answer = refusal.response
        return answer.status_code, answer.headers["Retry-After"], answer.body.decode()


def refuses(server: Server) -> None:
    """Wait until a call is refused for the limit: a busy machine's Redis may be too late for one call."""
    until(lambda: refused(server)[0] == 429, "the limit of calls is not kept")


def begins(server: Server) -> bool:
    return refused(server)[0] == 101


def test_two_calls_of_a_key_at_two_servers_and_one_of_them_is_killed(
    environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        one, other = two_servers(stack, tmp_path)
        with Talk(one, additional_headers=SHOWN), Talk(other, additional_headers=SHOWN) as talk:
            for server in (one, other):
                refuses(server)
                status, _, reason = refused(server)
                assert (status, reason.strip()) == (
                    429,
                    "this key has reached its limit of calls at a time: 2",
                )
            os.kill(one.process.pid, signal.SIGKILL)
            killed = time.monotonic()
            refuses(other)  # its calls count until their leases end
            until(lambda: begins(other), "its call counts for good", 60.0)
            assert time.monotonic() - killed > LEASE_S - 4.0
            assert talk.turn()["status"] == "completed"


def test_client_secret_of_one_server_opens_a_call_at_the_other(
    environment: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    environment.setenv("REJOINDER_KEY_SESSIONS", "1")
    with ExitStack() as stack:
        one, other = two_servers(stack, tmp_path)
        url = f"{one.http}/v1/realtime/client_secrets"
        request = urllib.request.Request(url, b"{}", SHOWN, method="POST")
        with urllib.request.urlopen(request, timeout=20) as answer:
            value = json.load(answer)["value"]
        with Talk(other, subprotocols=["realtime", f"{PROTOCOL}{value}"]) as talk:
            assert talk.turn()["status"] == "completed"
            refuses(one)  # the call counts for the key that minted the secret


@pytest.mark.parametrize("fault", ["killed", "hangs"])
def test_without_redis_calls_begin_or_are_refused(
    redis: RedisServer, environment: pytest.MonkeyPatch, tmp_path: Path, fault: str
) -> None:
    """One server is open without it, and one is closed. A call in progress goes on at both."""
    environment.setenv("REJOINDER_KEY_CALLS_PER_MIN", "1000")
    with ExitStack() as stack:
        lenient, strict = Path(tmp_path, "open"), Path(tmp_path, "closed")
        lenient.mkdir(), strict.mkdir()
        open_ = stack.enter_context(serving(lenient))
        environment.setenv("REJOINDER_LIMITS_WITHOUT_STORE", "closed")
        closed = stack.enter_context(serving(strict))
        with Talk(open_, additional_headers=SHOWN) as one, Talk(closed, additional_headers=SHOWN) as other:
            for server in (open_, closed):
                refuses(server)
            redis.kill() if fault == "killed" else redis.hang()
            began = time.monotonic()
            with Talk(open_, additional_headers=SHOWN):
                assert refused(open_)[0] == 429, "its own two calls run"
            status, again, reason = refused(closed)
            assert (status, again) == (503, str(STORE_AWAY_SECONDS)) and "cannot be checked" in reason
            request = urllib.request.Request(
                f"{closed.http}/v1/chat/completions", b"{}", SHOWN, method="POST"
            )
            with pytest.raises(urllib.error.HTTPError) as answer:
                urllib.request.urlopen(request, timeout=20)
            assert (answer.value.code, answer.value.headers["Retry-After"]) == (503, str(STORE_AWAY_SECONDS))
            assert json.load(answer.value)["error"]["code"] == "limits_unavailable"
            assert time.monotonic() - began < 30.0, "no request waits for the time-outs of others"
            assert one.turn()["status"] == other.turn()["status"] == "completed"
            for server, without in ((open_, "open"), (closed, "closed")):
                assert up(server, without) == 0.0
                assert "limits_store does not answer" in server.log.read_text()
            redis.start() if fault == "killed" else redis.go_on()
            for server, without in ((open_, "open"), (closed, "closed")):
                until(back(server, without), "Redis answers, and the server does not know")
            for server in (open_, closed):
                refuses(server)  # Redis knows both calls again
        until(lambda: begins(closed), "the calls have ended")


def up(server: Server, without: str) -> float:
    return metric(server, "limits_store_up", KEY, without_store=without)


def back(server: Server, without: str) -> Callable[[], bool]:
    return lambda: up(server, without) == 1.0
