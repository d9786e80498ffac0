"""The stores of conversations: a SQLite file, and a real Redis server."""

from __future__ import annotations

import asyncio
import stat
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from redis.asyncio import Redis
from support.servers.redis import RedisServer

from rejoinder.agent.metrics.meters import Meters
from rejoinder.agent.server.journal.journal import Journal
from rejoinder.agent.server.journal.opening import open_conversations
from rejoinder.agent.server.journal.redis import CONVERSATIONS_KEY
from rejoinder.agent.server.journal.sqlite import SqliteConversations
from rejoinder.agent.server.journal.store import ConversationStore, JournalLimits, Save, Saved, WriteRefusal
from rejoinder.pipeline.errors import ModelError

STATE = {"state": b"a long state", "reply": b"{}"}


@pytest.fixture(autouse=True)
def busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait long for a store that is there."""
    for limit in ("models.redis_server.REDIS_ANSWER_S", "agent.server.journal.sqlite.FILE_ANSWER_S"):
        monkeypatch.setattr(f"rejoinder.{limit}", 20.0)


@pytest.fixture(params=["sqlite", pytest.param("redis", marks=pytest.mark.server)])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'conversations.db'}"
    server: RedisServer = request.getfixturevalue("redis")
    server.empty()
    return server.url


def on(
    url: str, work: Callable[[ConversationStore], Awaitable[None]], limits: JournalLimits | None = None
) -> None:
    async def run() -> None:
        store = open_conversations(url, limits or JournalLimits())
        try:
            await work(store)
        finally:
            await store.aclose()

    asyncio.run(run())


def test_another_process_finds_what_was_saved_last(url: str) -> None:
    async def begin(store: ConversationStore) -> None:
        assert await store.find("a") is None
        assert await store.save([Save("a", 1, True, STATE), Save("b", 1, True, STATE)]) == {}
        assert await store.save([Save("a", 1, parts={"reply": b"further"})]) == {}
        await store.drop("b", 1)

    async def find(store: ConversationStore) -> None:
        assert await store.find("a") == Saved(1, {"state": b"a long state", "reply": b"further"})
        assert await store.find("b") is None

    on(url, begin)
    on(url, find)


def test_a_conversation_has_one_owner(url: str) -> None:
    async def race(store: ConversationStore) -> None:
        await store.save([Save("a", 1, True, STATE)])
        claims = await asyncio.gather(*(store.claim("a", 1) for _ in range(5)))
        assert sorted(claims, key=str) == [2, None, None, None, None]
        late = [Save("a", 1, parts={"state": b"old"}), Save("b", 1, True, STATE)]
        assert await store.save(late) == {"a": WriteRefusal.TAKEN}, "and the other one is written"
        await store.drop("a", 1)
        assert await store.find("a") == Saved(2, STATE)
        assert await store.claim("missing", 1) is None
        assert await store.save([Save("a", 2, parts={"state": b"new"})]) == {}

    on(url, race)


def test_what_was_dropped_stays_away(url: str) -> None:
    """A process that was cut off does not bring back a conversation that has ended at its successor."""

    async def end(store: ConversationStore) -> None:
        await store.save([Save("a", 1, True, STATE)])
        await store.claim("a", 1)
        await store.drop("a", 2)
        assert await store.save([Save("a", 1, parts=STATE)]) == {"a": WriteRefusal.DROPPED}
        assert await store.find("a") is None

    on(url, end)


def test_the_least_recently_seen_make_way(url: str) -> None:
    async def fill(store: ConversationStore) -> None:
        for name in "abc":
            await store.save([Save(name, 1, True, STATE)])
            await asyncio.sleep(0.01)
        await store.save([Save("a", 1)])  # its owner is alive
        await asyncio.sleep(0.01)
        await store.save([Save("d", 1, True, STATE)])
        assert [name for name in "abcd" if await store.find(name)] == ["a", "c", "d"]

    on(url, fill, JournalLimits(conversations=3))


def test_bytes_are_bounded(url: str) -> None:
    async def fill(store: ConversationStore) -> None:
        for name in "abc":
            await store.save([Save(name, 1, True, {"state": bytes(1000)})])
            await asyncio.sleep(0.01)
        assert [name for name in "abc" if await store.find(name)] == ["b", "c"]

    on(url, fill, JournalLimits(bytes=2500))


@pytest.mark.server
@pytest.mark.parametrize("evicted", [CONVERSATIONS_KEY, f"{CONVERSATIONS_KEY}:sizes"])
def test_an_index_that_redis_has_evicted_costs_no_new_conversation(redis: RedisServer, evicted: str) -> None:
    """With ``maxmemory-policy allkeys-lru``, a full server deletes any key."""

    async def fill(store: ConversationStore) -> None:
        async with Redis.from_url(redis.url) as client:
            await client.flushdb()
            await store.save([Save(name, 1, True, {"state": bytes(1000)}) for name in "ab"])
            assert await client.delete(evicted) == 1
            for name in "cde":
                await store.save([Save(name, 1, True, {"state": bytes(1000)})])
                await asyncio.sleep(0.01)
                assert await store.find(name)
            assert await client.zcard(CONVERSATIONS_KEY) == 2

    on(redis.url, fill, JournalLimits(conversations=2, bytes=2500))


def test_old_conversations_are_not_found(url: str) -> None:
    async def wait(store: ConversationStore) -> None:
        await store.save([Save("a", 1, True, STATE)])
        await asyncio.sleep(0.25)
        assert await store.find("a") is None
        await store.save([Save("b", 1, True, STATE)])
        assert await store.save([Save("a", 1, parts=STATE)]) == {"a": WriteRefusal.DROPPED}

    on(url, wait, JournalLimits(keep_s=0.2))


def test_only_the_owner_of_the_file_reads_it(tmp_path: Path) -> None:
    path = tmp_path / "kept" / "conversations.db"

    async def save(store: ConversationStore) -> None:
        await store.save([Save("a", 1, True, {"state": b"what a caller has said"})])
        for file in path.parent.iterdir():
            assert stat.S_IMODE(file.stat().st_mode) == 0o600, file

    on(f"sqlite:{path}", save)


def test_words_leave_the_file_with_their_conversation(tmp_path: Path) -> None:
    path = tmp_path / "conversations.db"

    async def end(store: ConversationStore) -> None:
        await store.save([Save("a", 1, True, {"state": b"what a caller has said"})])
        await store.drop("a", 1)

    on(f"sqlite:{path}", end)
    assert b"caller" not in b"".join(file.read_bytes() for file in tmp_path.iterdir())


def test_a_file_that_is_none_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("Not a database, but a text that is long enough to be none. " * 20)
    with pytest.raises(ModelError, match="cannot open"):
        SqliteConversations(path, JournalLimits(), lambda: 0.0)
    with pytest.raises(ModelError, match="'mysql' is no store"):
        open_conversations("mysql://here", JournalLimits())


@pytest.mark.server
def test_journal_ends_whatever_its_writer_waits_for(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With time-outs of its sockets, redis-py swallows some cancels of a task that waits for it."""
    monkeypatch.setattr("rejoinder.agent.server.journal.journal.COALESCE_S", 0.0)

    async def begin_and_end(turns: int) -> None:
        journal = Journal(open_conversations(redis.url, JournalLimits()), Meters())
        async with journal.running():
            for _ in range(4):
                journal._ended.append(("none", 1))
                journal.wake()
            for _ in range(turns):
                await asyncio.sleep(0)

    async def run() -> None:
        for turns in range(300):
            async with asyncio.timeout(20.0):
                await begin_and_end(turns % 100)

    asyncio.run(run())
