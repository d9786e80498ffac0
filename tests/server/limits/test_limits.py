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
from rejoinder.agent.server.limiting.addresses import grouped
from rejoinder.agent.server.limiting.allowance import BUSY_SECONDS, MINUTE, Allowance, own_allowances
from rejoinder.agent.server.limiting.limits import Limits, limits_of
from rejoinder.agent.settings.networks import networks
from rejoinder.pipeline import day_tally
from rejoinder.pipeline.day_tally import DayTally

KEY, OTHER, FREE = "rj_one", "rj_two", "rj_three"


A, B = ("key:a",), ("key:b",)


def test_concurrent_calls_of_a_key_are_limited() -> None:
    limits = Limits(Allowance(sessions=2))
    assert limits.begin(A, 0.0) is None and limits.begin(A, 0.0) is None
    refused = limits.begin(A, 0.0)
    assert refused is not None and "this key may hold no more calls at once than 2" in refused.reason
    assert refused.retry == BUSY_SECONDS
    assert limits.begin(B, 0.0) is None, "another key has calls of its own"
    assert limits.begin(A, 0.0, call=False) is None, "a request holds no call"
    limits.end(A)
    assert limits.begin(A, 0.0) is None and limits.begin(A, 0.0) is not None


def test_calls_per_minute_of_a_key_are_limited() -> None:
    limits = Limits(Allowance(per_minute=3))
    assert [limits.begin(A, at, call=False) for at in (0.0, 10.0)] == [None, None]
    assert limits.begin(A, 20.0) is None
    refused = limits.begin(A, 20.5)
    assert refused is not None and "minute than 3" in refused.reason and refused.retry == 40
    assert limits.begin(A, 59.9, call=False) is not None and limits.begin(A, 60.0, call=False) is None
    again = limits.begin(A, 60.0, call=False)
    assert again is not None and again.retry == 10


def test_refused_call_does_not_count_for_the_minute() -> None:
    limits = Limits(Allowance(sessions=1, per_minute=2))
    assert limits.begin(A, 0.0) is None
    assert all(limits.begin(A, 1.0) for _ in range(5))
    limits.end(A)
    assert limits.begin(A, 2.0) is None
    refused = limits.begin(A, 3.0, call=False)
    assert refused is not None and refused.retry == 57


def test_call_that_is_taken_back_does_not_count() -> None:
    limits = Limits(Allowance(sessions=1, per_minute=1))
    assert limits.begin(A, 0.0) is None
    limits.take_back(A, 0.0)
    assert limits.begin(A, 1.0) is None


def test_refusal_of_one_owner_counts_for_none() -> None:
    limits = Limits(Allowance(sessions=9, per_minute=9), Allowance(sessions=1))
    both, other = ("key:a", "address:192.0.2.1"), ("address:192.0.2.1",)
    assert limits.begin(other, 0.0) is None
    refused = limits.begin(both, 0.0)
    assert refused is not None and "this address may hold no more calls at once than 1" in refused.reason
    assert limits.use("key:a", 0.0).sessions == limits.use("key:a", 0.0).recent == 0


def test_only_owners_with_limits_are_counted() -> None:
    limits = Limits(Allowance(1, 1), Allowance(sessions=1), exempt=networks("10.0.0.0/8, ::1"))
    assert limits.owners("", "") == () == limits.owners("", "10.1.2.3")
    assert limits.owners("abc", "192.0.2.1") == ("key:abc", "address:192.0.2.1")
    assert Limits().owners("abc", "192.0.2.1") == ()
    for _ in range(3):
        assert limits.begin((), 0.0) is None
        limits.end(())


@pytest.mark.parametrize(
    ("host", "group"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("10.1.2.3", ""),
        ("::ffff:10.1.2.3", ""),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:ffff::", "2001:db8:1:2::/64"),
        ("2001:db8:ff::1", ""),
        ("testclient", "testclient"),
    ],
)
def test_addresses_of_one_customer_count_together(host: str, group: str) -> None:
    assert grouped(host, networks("10.0.0.0/8 2001:db8:ff::/48")) == group


def test_audio_of_an_address_is_limited_too() -> None:
    limits = Limits(Allowance(audio_s=10), Allowance(audio_s=5))
    owners = limits.owners("key", "192.0.2.1")
    assert limits.hear(owners, 4.0) == ""
    assert limits.hear(owners, 2.0) == "this address may send no more audio on one day than 5 s"
    assert limits.hear(owners, 5.0) == "this key may send no more audio on one day than 10 s"
    other = limits.owners("another key", "192.0.2.1")
    denial = limits.begin(other, 0.0)
    assert denial and "this address" in denial.reason and limits.begin(other, 0.0, call=False) is None
    assert limits.begin(limits.owners("another key", "192.0.2.2"), 0.0) is None


def test_audio_of_an_address_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(day_tally, "MOST_NAMES", 1)
    settings = Settings(address_audio_s_per_day=5, address_exempt="192.0.2.9")
    limits = limits_of(settings, DayTally())
    one, same, another, exempt = (
        limits.owners("", host) for host in ("2001:db8::1", "2001:db8::2", "192.0.2.2", "192.0.2.9")
    )
    assert limits.hear(one, 3.0) == limits.hear(exempt, 9.0) == "" and one == same
    assert limits.hear(same, 3.0) == "this address may send no more audio on one day than 5 s"
    assert limits.hear(another, 9.0) == "", "of one name too many, nothing is counted"


def test_audio_of_a_key_is_limited_by_the_day() -> None:
    today = ["Monday"]
    limits = Limits(Allowance(audio_s=10), tally=DayTally(lambda: today[0]))
    assert limits.begin(A, 0.0) is None
    assert [limits.hear(A, 4.0) for _ in range(2)] == ["", ""]
    assert limits.hear(A, 4.0) == "this key may send no more audio on one day than 10 s"
    refused = limits.begin(A, 0.0)
    assert refused is not None and 1 <= refused.retry <= 86_400
    assert limits.begin(A, 0.0, call=False) is None, "a request sends no audio"
    assert limits.hear(B, 4.0) == ""
    today[0] = "Tuesday"
    assert limits.begin(A, 0.0) is None and limits.hear(A, 4.0) == ""


def test_key_may_have_its_own_limits() -> None:
    own = own_allowances(f"{hashed(KEY)}:1:9  {hashed(OTHER)}\n{hashed(FREE)}:0:0 {'f' * 64}:1:2:3", 9)
    names = [f"key:{hashed(KEY)}", f"key:{hashed(FREE)}", f"key:{'f' * 64}"]
    assert own == dict(zip(names, [Allowance(1, 9, 9), Allowance(0, 0, 9), Allowance(1, 2, 3)], strict=True))
    limits = Limits(Allowance(sessions=2), own=own)
    for key, calls in ((KEY, 1), (OTHER, 2)):
        owners = limits.owners(hashed(key))
        assert [limits.begin(owners, 0.0) is None for _ in range(calls + 1)] == [True] * calls + [False]
    assert Limits(Allowance(sessions=2), own=own_allowances(f"{hashed(FREE)}:0:0")).owners(hashed(FREE)) == ()


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
            limits.end(A)
            held -= 1
        elif what != "e":
            refused = limits.begin(A, now, call=what == "b")
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
        ({"key_audio_s_per_day": 1}, "api_keys"),
        ({"key_sessions": 1, "api_keys": hashed(KEY)}, ""),
        ({"key_sessions": 1, "api_keys_file": "keys"}, ""),
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


@pytest.mark.parametrize("tail", [":1", ":1:", ":a:1", ":1:1:1:1", ":-1:1"])
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


def test_clients_behind_a_proxy_are_limited_by_their_own_addresses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The proxy names the address last; what a client writes in front of it changes nothing."""
    for name in ("REJOINDER_API_KEYS", "REJOINDER_KEY_SESSIONS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("REJOINDER_ADDRESS_SESSIONS", "2")

    def of(forwarded: str) -> dict[str, Any]:
        return {"additional_headers": {"X-Forwarded-For": forwarded}}

    one, other = "203.0.113.7", "198.51.100.8"
    with serving(tmp_path, trusted_proxies="127.0.0.1") as server:
        with Talk(server, **of(one)) as first, Talk(server, **of(one)), Talk(server, **of(other)):
            for forwarded in (one, f"{other}, {one}"):
                with pytest.raises(InvalidStatus) as refusal, server.call(**of(forwarded)):
                    pass
                answer = refusal.value.response
                assert answer.status_code == 429 and answer.headers["Retry-After"] == str(BUSY_SECONDS)
                assert b"this address may hold no more calls at once than 2" in answer.body
            with Talk(server, **of(other)) as fourth:
                assert fourth.turn()["status"] == "completed"
            assert first.turn()["status"] == "completed"
        server.wait_idle()
        with Talk(server, **of(one)):
            pass


def test_limits_are_read_from_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REJOINDER_KEY_SESSIONS", raising=False)
    monkeypatch.delenv("REJOINDER_API_KEYS", raising=False)
    (tmp_path / "x.toml").write_text(f'api_keys = "{hashed(KEY)}:1:2"\nkey_sessions = 3\n')
    settings, _ = load({}, tmp_path / "x.toml")
    assert settings.key_sessions == 3 and own_allowances(settings.api_keys) == {
        f"key:{hashed(KEY)}": Allowance(1, 2)
    }


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
