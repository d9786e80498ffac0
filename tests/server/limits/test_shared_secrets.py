"""Client secrets of several servers: one mints them, and all accept them, by a real Redis."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import pytest
from redis.asyncio import Redis
from support.servers.redis import RedisServer

from rejoinder.agent.server.keys import MAX_SECRETS, SECRET_LENGTH, Keys, hashed
from rejoinder.agent.server.limiting import shared_secrets
from rejoinder.agent.server.limiting.shared_secrets import SECRET_LOOKUPS, SECRETS_KEY, SharedSecrets
from rejoinder.agent.wires.realtime.mcp import SECRET_FIELDS

pytestmark = pytest.mark.server
KEY, OTHER = "rj_one", "rj_two"
SESSION = {"instructions": "Speak French. \N{SNOWMAN}"}


def with_two(
    url: str, work: Callable[[Keys, SharedSecrets, Keys, SharedSecrets], Awaitable[None]], later: float = 0.0
) -> None:
    """Run work with two servers. later: what the clock of the second is ahead, in seconds."""

    async def run() -> None:
        one, other = (Keys([hashed(KEY), hashed(OTHER)], lambda ahead=ahead: ahead) for ahead in (0.0, later))
        async with AsyncExitStack() as stack:
            here, there = SharedSecrets(url, one), SharedSecrets(url, other)
            stack.push_async_callback(here.aclose)
            stack.push_async_callback(there.aclose)
            await work(one, here, other, there)

    asyncio.run(run())


@pytest.fixture(autouse=True)
def busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait long for a Redis that is there; one that is not refuses at once."""
    for seconds in ("LIMITS_WAIT_S", "SECRET_LOOKUP_S"):
        monkeypatch.setattr(shared_secrets, seconds, 20.0)
    monkeypatch.setattr("rejoinder.models.redis_server.REDIS_ANSWER_S", 20.0)


def test_secret_of_one_server_is_valid_at_all_until_it_expires(redis: RedisServer) -> None:
    async def work(one: Keys, here: SharedSecrets, other: Keys, there: SharedSecrets) -> None:
        value, _ = one.mint(600.0, SESSION, KEY)
        assert other.session(value) is None
        await there.learn(value)
        assert other.session(value) is None, "it is not published yet"
        await here.publish(value)
        await there.learn(value)
        assert (other.session(value), other.owner(value)) == (SESSION, hashed(KEY))
        minted = other.minted(value)
        assert minted and 500.0 < minted[1] <= 600.0, "the clocks of the servers are an hour apart"
        async with Redis.from_url(redis.url) as client:
            assert await client.keys(f"{SECRETS_KEY}:*") == [f"{SECRETS_KEY}:{hashed(value)}".encode()]
            assert 500_000 < await client.pttl(f"{SECRETS_KEY}:{hashed(value)}") <= 600_000

    redis.empty()
    with_two(redis.url, work, later=3600.0)


def test_secret_ends_with_its_key_at_each_server(redis: RedisServer) -> None:
    async def work(one: Keys, here: SharedSecrets, other: Keys, there: SharedSecrets) -> None:
        value, _ = one.mint(60.0, SESSION, KEY)
        await here.publish(value)
        other.replace([hashed(OTHER)])
        await there.learn(value)
        assert other.session(value) is None

    redis.empty()
    with_two(redis.url, work)


def test_secrets_of_other_servers_take_no_more_room(redis: RedisServer) -> None:
    keys = Keys([hashed(KEY)], lambda: 0.0)
    for number in range(MAX_SECRETS + 2):
        keys.learn(f"ek_{number}", 60.0, b"{}", hashed(KEY))
    assert keys.minted("ek_1") is None and keys.minted("ek_2") is not None


def test_without_redis_a_secret_is_valid_at_its_own_server(caplog: pytest.LogCaptureFixture) -> None:
    async def work(one: Keys, here: SharedSecrets, other: Keys, there: SharedSecrets) -> None:
        value, _ = one.mint(60.0, SESSION, KEY)
        for _ in range(3):
            await here.publish(value)
            here._away_until = 0.0
        assert one.session(value) == SESSION
        for _ in range(3):
            await there.learn(value)
        await there.learn("rj_a_key"), await there.learn("")
        assert other.session(value) is None

    caplog.set_level(logging.WARNING)
    with_two("redis://127.0.0.1:1", work)
    said = [record.getMessage().partition(":")[0] for record in caplog.records]
    assert said == ["limits_store has not answered, so client secrets hold at one server only"] * 2, (
        "one line for each server"
    )
    assert "ek_" not in caplog.text


@pytest.mark.parametrize("field", SECRET_FIELDS)
def test_credentials_of_tools_stay_at_their_server(
    redis: RedisServer, field: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def work(one: Keys, here: SharedSecrets, other: Keys, there: SharedSecrets) -> None:
        tool = {"type": "mcp", "server_label": "shop", "server_url": "https://shop.example"}
        value, _ = one.mint(60.0, {"tools": [{**tool, field: {"X-Token": "hidden"}}]}, KEY)
        await here.publish(value)
        await there.learn(value)
        assert one.session(value) and other.session(value) is None
        async with Redis.from_url(redis.url) as client:
            assert await client.keys("*") == []
        value, _ = one.mint(60.0, {"tools": [tool]}, KEY)
        await here.publish(value)
        await there.learn(value)
        assert other.session(value) == {"tools": [tool]}

    redis.empty()
    with_two(redis.url, work)
    assert "credentials of an MCP server" in caplog.text and "hidden" not in caplog.text


def test_what_has_the_form_of_a_secret_is_looked_up_by_few_at_a_time(redis: RedisServer) -> None:
    """Strangers cause no lookup of a string of another form, and many at once do not take Redis away."""

    async def work(one: Keys, here: SharedSecrets, other: Keys, there: SharedSecrets) -> None:
        before = await lookups()
        await asyncio.gather(*(there.learn(f"ek_{number}") for number in range(50)))
        assert await lookups() == before
        guesses = (f"ek_{number:0{SECRET_LENGTH - 3}}" for number in range(150))
        await asyncio.gather(*(there.learn(guess) for guess in guesses))
        assert before < await lookups()
        value, _ = one.mint(60.0, SESSION, KEY)
        await here.publish(value)
        await there.learn(value)
        assert other.session(value) == SESSION
        async with Redis.from_url(redis.url) as client, asyncio.timeout(20.0):
            # The lookups, the minting server, and this test. Those of before are closed soon.
            while len(await client.client_list()) > SECRET_LOOKUPS + 3:  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    async def lookups() -> int:
        async with Redis.from_url(redis.url) as client:
            found = await client.info("commandstats")
        return int(found.get("cmdstat_pttl", {"calls": 0})["calls"])

    redis.empty()
    with_two(redis.url, work)
