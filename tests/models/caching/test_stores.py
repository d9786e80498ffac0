"""The stores of the cache: a SQLite file, and a real Redis server."""

from __future__ import annotations

import asyncio
import socket
import time
from pathlib import Path

import pytest
from support.servers.redis import RedisServer, redis_server

from rejoinder.models.caching.cache import SemanticCache
from rejoinder.models.caching.opening import open_store
from rejoinder.models.caching.redis import RedisStore
from rejoinder.models.caching.sqlite import SqliteStore
from rejoinder.models.caching.store import AnswerStore, CacheLimits, Stats
from rejoinder.models.redis_server import passwords_of, without_passwords
from rejoinder.pipeline import AudioChunk
from rejoinder.pipeline.caching.answers import CachedAnswer, CacheQuestion
from rejoinder.pipeline.errors import ModelError

QUESTION = CacheQuestion("What is the capital of France?", "scope", "whisper:tiny.en")
ANSWER = CachedAnswer(
    [
        ("It is Paris.", AudioChunk(bytes(range(200)) * 3, 22_050, words=((0.1, 2), (0.25, 12)))),
        ("Yes, Paris.", AudioChunk(b"\x01\n" * 90, 22_050)),
    ]
)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let lookups and writes take their time: a busy machine needs more than a call would wait."""
    for seconds in ("LOOKUP_S", "CACHE_WRITE_S"):
        monkeypatch.setattr(f"rejoinder.models.caching.cache.{seconds}", 20.0)


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=pytest.mark.server)])
def url(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr("rejoinder.models.redis_server.REDIS_ANSWER_S", 20.0)
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'answers.db'}"
    server: RedisServer = request.getfixturevalue("redis")
    server.empty()
    return server.url


async def emptied(url: str) -> None:
    store = open_store(url, CacheLimits())
    await store.purge()
    await store.aclose()


async def stored(store: AnswerStore, *keys: str, size: int = 10) -> list[str]:
    """Store entries, and return the keys of those that are left, with the store closed."""
    try:
        for key in keys:
            await store.put(key, key.encode() * size)
        return [key for key in keys if await store.get(key) == key.encode() * size]
    finally:
        await store.aclose()


def test_an_entry_is_found_by_its_key_until_it_is_purged(url: str) -> None:
    async def use() -> None:
        store = open_store(url, CacheLimits())
        await store.put("a", b"one")
        await store.put("a", b"two")
        await store.put("b", b"three")
        assert (await store.get("a"), await store.get("c")) == (b"two", None)
        assert await store.stats() == Stats(2, 8)
        assert await store.purge() == 2
        assert (await store.get("a"), await store.stats()) == (None, Stats(0, 0))
        await store.aclose()

    asyncio.run(use())


def test_the_oldest_entries_go_first(url: str) -> None:
    assert asyncio.run(stored(open_store(url, CacheLimits(entries=2)), "a", "b", "c")) == ["b", "c"]
    asyncio.run(emptied(url))
    assert asyncio.run(stored(open_store(url, CacheLimits(bytes=25)), "a", "b", "c")) == ["b", "c"]
    assert asyncio.run(stored(open_store(url, CacheLimits(bytes=5)), "d")) == []


def test_an_entry_expires(url: str) -> None:
    async def use() -> None:
        store = open_store(url, CacheLimits(ttl_s=0.2))
        await store.put("a", b"one")
        await asyncio.sleep(0.3)
        assert await store.get("a") is None
        assert await store.stats() == Stats(0, 0)
        await store.aclose()
        store = open_store(url, CacheLimits())  # on a busy machine, this one would have expired, too
        await store.put("b", b"two")
        assert await store.stats() == Stats(1, 3)
        await store.aclose()

    asyncio.run(use())


def test_two_processes_share_a_store(url: str) -> None:
    async def use() -> None:
        one, other = open_store(url, CacheLimits()), open_store(url, CacheLimits())
        await one.put("a", b"one")
        assert await other.get("a") == b"one"
        await other.purge()
        assert await one.get("a") is None
        await one.aclose()
        await other.aclose()

    asyncio.run(use())


def test_answers_come_back_whole_and_to_their_own_tenant_only(url: str) -> None:
    async def use() -> None:
        async with SemanticCache(open_store(url, CacheLimits())).running() as cache:
            cache.of("one").keep(QUESTION, ANSWER)
        async with SemanticCache(open_store(url, CacheLimits())).running() as cache:
            assert await cache.of("one").find(QUESTION) == ANSWER
            for other in ("two", "", "on", "one "):
                assert await cache.of(other).find(QUESTION) is None

    asyncio.run(use())


def test_a_damaged_entry_is_a_miss(url: str) -> None:
    async def use() -> None:
        async with SemanticCache(open_store(url, CacheLimits())).running() as cache:
            key = cache.key("one", QUESTION)
            assert key
            for body in (b"", b"[]", b'{"clauses": 3}\n', b'{"question": "", "clauses": []}\nrest'):
                cache = SemanticCache(cache.store)
                await cache.store.put(key, body)
                assert await cache.find("one", QUESTION) is None

    asyncio.run(use())


@pytest.mark.server
def test_a_redis_that_is_away_or_hangs_is_a_miss(redis: RedisServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async def use() -> None:
        with socket.create_server(("127.0.0.1", 0)) as hanging:  # it accepts, and never answers
            port = hanging.getsockname()[1]
            for url in (f"redis://127.0.0.1:{port}", "redis://127.0.0.1:1"):
                monkeypatch.setattr("rejoinder.models.caching.cache.LOOKUP_S", 0.1)
                async with SemanticCache(RedisStore(url, CacheLimits())).running() as cache:
                    assert await cache.find("one", QUESTION) is None
        monkeypatch.setattr("rejoinder.models.redis_server.REDIS_ANSWER_S", 20.0)
        store = RedisStore(redis.url, CacheLimits())  # a lookup that is given up leaves it usable
        await store.put("a", b"one")
        for _ in range(20):
            lookup = asyncio.create_task(store.get("a"))
            await asyncio.sleep(0)
            lookup.cancel()
        assert await store.get("a") == b"one"
        await store.aclose()

    asyncio.run(use())


@pytest.mark.server
def test_a_redis_that_comes_back_is_used_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is empty then: what it held is lost, and nothing else."""
    monkeypatch.setattr("rejoinder.models.caching.cache.CACHE_RETRY_S", 0.0)
    monkeypatch.setattr("rejoinder.models.redis_server.REDIS_ANSWER_S", 20.0)

    async def use(server: RedisServer) -> None:
        async with SemanticCache(RedisStore(server.url, CacheLimits())).running() as cache:
            await cache.put("one", QUESTION, ANSWER)
            assert await cache.find("one", QUESTION) == ANSWER
            server.kill()
            assert await cache.find("one", QUESTION) is None
            server.start()
            assert await cache.find("one", QUESTION) is None
            await cache.put("one", QUESTION, ANSWER)
            assert await cache.find("one", QUESTION) == ANSWER

    with redis_server(tmp_path) as server:
        asyncio.run(use(server))


@pytest.mark.parametrize("url", ["", "sqlite:", "answers.db", "http://user:secret@host"])
def test_a_url_that_is_no_store_is_refused(url: str) -> None:
    with pytest.raises(ModelError, match="sqlite:PATH or redis://HOST") as refused:
        open_store(url, CacheLimits())
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    "url", ["redis://127.0.0.1:x", "redis://:secret/word@127.0.0.1", "redis://:[secret@h"]
)
def test_a_redis_url_that_is_wrong_is_named(url: str) -> None:
    with pytest.raises(ModelError, match="URL of the Redis server is wrong") as refused:
        open_store(url, CacheLimits())
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "passwords", "shown"),
    [
        ("redis://:sec@ret@host:1/0", ["sec@ret"], "redis://***@host:1/0"),
        ("redis://host?password=secret", ["", "secret"], "redis://host"),
        ("redis://:sec/ret@host", ["sec/ret"], "redis://***@host"),
        ("sqlite:answers.db", [""], "sqlite:answers.db"),
    ],
)
def test_passwords_of_addresses_are_known_and_not_shown(url: str, passwords: list[str], shown: str) -> None:
    assert (passwords_of(url), without_passwords(url)) == (passwords, shown)


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "answers.db").write_bytes(b"no database" * 100)
    with pytest.raises(ModelError, match=r"answers\.db: file is not a database"):
        SqliteStore(tmp_path / "answers.db", CacheLimits(), time.time)


def test_an_entry_of_a_clock_that_was_hours_ahead_is_not_used(tmp_path: Path) -> None:
    now = [1_000_000.0]

    async def use() -> None:
        store = SqliteStore(tmp_path / "answers.db", CacheLimits(ttl_s=60.0), lambda: now[0])
        now[0] += 10 * 3600.0
        await store.put("ahead", b"answer")
        assert await store.get("ahead") == b"answer"
        now[0] -= 10 * 3600.0
        assert await store.get("ahead") is None
        await store.put("ahead", b"another")
        now[0] += 1.0
        assert await store.get("ahead") == b"another"
        await store.aclose()

    asyncio.run(use())
