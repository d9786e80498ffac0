"""Limits of an API key: the decisions on given times, and the refusals on real sockets."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai import AsyncOpenAI
from support.patience import PATIENCE
from support.serving import Server, Talk, serving
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from rejoinder.agent.config import ConfigError, Settings, check_open, load
from rejoinder.agent.server.keys import PROTOCOL, Keys, hashed
from rejoinder.agent.server.limits import BUSY_SECONDS, MINUTE, Allowance, Limits, own_allowances

KEY, OTHER, FREE = "rj_one", "rj_two", "rj_three"


def test_concurrent_calls_of_a_key_are_limited() -> None:
    limits = Limits(Allowance(sessions=2))
    assert limits.begin("a", 0.0) is None and limits.begin("a", 0.0) is None
    refused = limits.begin("a", 0.0)
    assert refused is not None and "at once than 2" in refused.reason and refused.retry == BUSY_SECONDS
    assert limits.begin("b", 0.0) is None, "another key has calls of its own"
    assert limits.ask("a", 0.0) is None, "a request holds no call"
    limits.end("a")
    assert limits.begin("a", 0.0) is None and limits.begin("a", 0.0) is not None


def test_calls_per_minute_of_a_key_are_limited() -> None:
    limits = Limits(Allowance(per_minute=3))
    assert [limits.ask("a", at) for at in (0.0, 10.0)] == [None, None]
    assert limits.begin("a", 20.0) is None
    refused = limits.begin("a", 20.5)
    assert refused is not None and "minute than 3" in refused.reason and refused.retry == 40
    assert limits.ask("a", 59.9) is not None and limits.ask("a", 60.0) is None
    again = limits.ask("a", 60.0)
    assert again is not None and again.retry == 10


def test_refused_call_does_not_count_for_the_minute() -> None:
    limits = Limits(Allowance(sessions=1, per_minute=2))
    assert limits.begin("a", 0.0) is None
    assert all(limits.begin("a", 1.0) for _ in range(5))
    limits.end("a")
    assert limits.begin("a", 2.0) is None
    refused = limits.ask("a", 3.0)
    assert refused is not None and refused.retry == 57


def test_clients_without_keys_are_not_limited_or_counted() -> None:
    limits = Limits(Allowance(1, 1))
    for _ in range(3):
        assert limits.begin("", 0.0) is None
        limits.end("")
    assert limits.ask("", 0.0) is None


def test_key_may_have_its_own_limits() -> None:
    own = own_allowances(f"{hashed(KEY)}:1:9  {hashed(OTHER)}\n{hashed(FREE)}:0:0")
    assert own == {hashed(KEY): Allowance(1, 9), hashed(FREE): Allowance()}
    limits = Limits(Allowance(sessions=2), own)
    for key, calls in ((KEY, 1), (OTHER, 2)):
        assert [limits.begin(hashed(key), 0.0) is None for _ in range(calls + 1)] == [True] * calls + [False]
    assert all(limits.begin(hashed(FREE), 0.0) is None for _ in range(20))


@given(
    st.lists(st.tuples(st.sampled_from("bae"), st.floats(0.0, 40.0)), max_size=60),
    st.integers(0, 3),
    st.integers(0, 4),
)
def test_no_order_of_calls_exceeds_the_limits(
    done: list[tuple[str, float]], sessions: int, most: int
) -> None:
    limits, now, held, begun = Limits(Allowance(sessions, most)), 0.0, 0, []
    for what, later in done:
        now += later
        if what == "e" and held:
            limits.end("k")
            held -= 1
        elif what != "e":
            refused = limits.begin("k", now) if what == "b" else limits.ask("k", now)
            room = not most or len([at for at in begun if now - at < MINUTE]) < most
            free = what == "a" or not sessions or held < sessions
            assert (refused is None) == (room and free)
            if refused is None:
                begun.append(now)
                held += what == "b"
            elif free:
                assert refused.retry >= 1
                oldest = next(at for at in begun if now - at < MINUTE)
                assert 0 <= now + refused.retry - (oldest + MINUTE) <= 1.0


def test_secret_counts_for_the_key_that_minted_it() -> None:
    now = [0.0]
    keys = Keys([hashed(KEY), hashed(OTHER)], lambda: now[0])
    value, _ = keys.mint(60.0, {}, OTHER)
    assert keys.owner(value) == keys.owner(OTHER) == hashed(OTHER)
    assert keys.owner(KEY) == hashed(KEY) and keys.owner("rj_none") == keys.owner("") == ""
    now[0] = 60.0
    assert keys.owner(value) == ""
    assert Keys([], lambda: 0.0).owner("whatever") == ""


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"key_sessions": 1}, "api_keys"),
        ({"key_calls_per_min": 1}, "api_keys"),
        ({"key_sessions": 1, "api_keys": hashed(KEY)}, ""),
        ({"host": "0.0.0.0", "api_keys": hashed(KEY), "audiosocket_port": 9092}, "AudioSocket has no keys"),
        ({"host": "0.0.0.0", "audiosocket_port": 9092}, "api_keys"),
        ({"host": "0.0.0.0", "audiosocket_port": 9092, "open_to_all": True}, ""),
        ({"host": "::1", "api_keys": hashed(KEY), "audiosocket_port": 9092}, ""),
    ],
)
def test_limits_and_ports_without_effective_keys_are_refused(settings: dict[str, Any], word: str) -> None:
    if not word:
        check_open(Settings(**settings))
        return
    with pytest.raises(ConfigError, match=word):
        check_open(Settings(**settings))


@pytest.mark.parametrize("tail", [":1", ":1:", ":a:1", ":1:1:1", ":-1:1"])
def test_invalid_limits_get_an_error(tail: str) -> None:
    with pytest.raises(ConfigError, match="--api-keys has to be the hashes of keys"):
        load({"api_keys": hashed(KEY) + tail})


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REJOINDER_API_KEYS", f"{hashed(KEY)} {hashed(OTHER)}:0:2 {hashed(FREE)}:0:0")
        patch.setenv("REJOINDER_KEY_SESSIONS", "1")
        with serving(tmp_path_factory.mktemp("limits")) as server:
            yield server


def shown(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def minted(server: Server, key: str) -> str:
    url = f"{server.http}/v1/realtime/client_secrets"
    request = urllib.request.Request(url, b"{}", shown(key), method="POST")
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return str(json.load(answer)["value"])


def test_second_call_of_a_key_is_refused_before_it_begins(server: Server) -> None:
    secret = minted(server, KEY)
    phone = f"ws://127.0.0.1:{server.port}/v1/phone"
    with Talk(server, additional_headers=shown(KEY)) as first, Talk(server, additional_headers=shown(FREE)):
        for calls in (
            lambda: server.call(additional_headers=shown(KEY)),
            lambda: server.call(subprotocols=["realtime", f"{PROTOCOL}{secret}"]),
            lambda: connect(phone, proxy=None, additional_headers=shown(KEY)),
        ):
            with pytest.raises(InvalidStatus) as refusal:
                calls()
            answer = refusal.value.response
            assert answer.status_code == 429 and answer.headers["Retry-After"] == str(BUSY_SECONDS)
            assert b"at once than 1" in answer.body
        with pytest.raises(InvalidStatus) as refusal, server.call(additional_headers=shown("rj_none")):
            pass
        assert refusal.value.response.status_code == 401, "an unknown key gets this answer, and no more"
        assert first.turn()["status"] == "completed"
    server.wait_idle()
    with Talk(server, subprotocols=["realtime", f"{PROTOCOL}{secret}"]):
        pass
    server.wait_idle()


def test_requests_count_too_and_openais_client_knows_the_error(server: Server) -> None:
    async def mint() -> None:
        async with AsyncOpenAI(api_key=OTHER, base_url=f"{server.http}/v1", max_retries=0) as client:
            await client.realtime.client_secrets.create()

    with Talk(server, additional_headers=shown(OTHER)):
        pass
    asyncio.run(mint())
    with pytest.raises(openai.RateLimitError, match="minute than 2") as refused:
        asyncio.run(mint())
    assert refused.value.code == "rate_limit_exceeded" and refused.value.type == "requests"
    assert 1 <= int(refused.value.response.headers["Retry-After"]) <= MINUTE
    with pytest.raises(InvalidStatus) as refusal, server.call(additional_headers=shown(OTHER)):
        pass
    assert refusal.value.response.status_code == 429
    server.wait_idle()


def test_limits_are_read_from_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REJOINDER_KEY_SESSIONS", raising=False)
    monkeypatch.delenv("REJOINDER_API_KEYS", raising=False)
    (tmp_path / "x.toml").write_text(f'api_keys = "{hashed(KEY)}:1:2"\nkey_sessions = 3\n')
    settings, _ = load({}, tmp_path / "x.toml")
    assert settings.key_sessions == 3 and own_allowances(settings.api_keys) == {hashed(KEY): Allowance(1, 2)}


def test_error_of_a_request_has_openais_shape(server: Server) -> None:
    for _ in range(3):
        try:
            minted(server, OTHER)
        except urllib.error.HTTPError as refused:
            with refused:
                assert refused.code == 429
                error = json.load(refused)["error"]
                assert set(error) == {"type", "code", "message", "param", "event_id"}
            return
    raise AssertionError("it was never refused")
