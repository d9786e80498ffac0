"""Limits, budgets and client secrets that several servers share: by a real Redis server."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis
from support.patience import PATIENCE
from support.resuming import conversation
from support.servers.redis import RedisServer, redis_server
from support.serving import Server, Talk, serving
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect

from rejoinder.agent.config import ConfigError, Settings
from rejoinder.agent.metrics.meters import Meters
from rejoinder.agent.server.keys import PROTOCOL, Keys, hashed
from rejoinder.agent.server.limiting import shared
from rejoinder.agent.server.limiting.allowance import Allowance
from rejoinder.agent.server.limiting.limiter import Limiter, open_limiter
from rejoinder.agent.server.limiting.limits import Limits
from rejoinder.agent.server.limiting.redis import RedisUse
from rejoinder.agent.server.limiting.shared import UNCHECKED, SharedUse
from rejoinder.models.redis_server import open_redis
from rejoinder.pipeline import day_tally
from rejoinder.pipeline.budget import BudgetLimit, BudgetPlan, Budgets
from rejoinder.pipeline.day_tally import DayTally

pytestmark = pytest.mark.server
KEY = "rj_a-key-of-the-tests"
A = ("key:a",)
NO_AUDIO = "this key may send no more audio on one day than 4 s"


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that answers late counts as gone, and on a busy machine it answers late."""
    monkeypatch.setattr(shared, "LIMITS_WAIT_S", PATIENCE / 16)


@asynccontextmanager
async def one_server(
    url: str,
    allowance: Allowance,
    *,
    closed: bool = False,
    tally: DayTally | None = None,
    lease: float = 60.0,
) -> AsyncIterator[Limiter]:
    limits = Limits(allowance, tally=tally)
    use = SharedUse(limits, RedisUse(open_redis(url, "limits_store"), lease), closed, Meters())
    limiter = Limiter(limits, use)
    async with limiter.running():
        yield limiter


def on(work: Callable[[], Awaitable[None]]) -> None:
    async def within() -> None:
        async with asyncio.timeout(PATIENCE):
            await work()

    asyncio.run(within())


async def until(holds: Callable[[], Awaitable[bool]]) -> None:
    while True:
        if await holds():
            return
        await asyncio.sleep(0.02)


@pytest.mark.parametrize("allowance", [Allowance(sessions=5), Allowance(per_minute=5), Allowance(5, 9)])
def test_servers_begin_no_more_together_than_is_allowed(redis: RedisServer, allowance: Allowance) -> None:
    async def work() -> None:
        async with AsyncExitStack() as stack:
            servers = [await stack.enter_async_context(one_server(redis.url, allowance)) for _ in range(4)]
            denials = await asyncio.gather(*(servers[number % 4].begin(A) for number in range(40)))
            # A reservation counts while it is asked for.
            assert denials.count(None) == 5 if not allowance.sessions else 1 <= denials.count(None) <= 5
            assert {denial.status for denial in denials if denial} == {429}
            assert await servers[0].begin(("key:b",)) is None, "another key has limits of its own"

    redis.empty()
    on(work)


def test_call_that_ends_makes_room_at_another_server(redis: RedisServer) -> None:
    async def work() -> None:
        most = Allowance(sessions=1)
        async with one_server(redis.url, most) as one, one_server(redis.url, most) as other:
            assert await one.begin(A) is None and await other.begin(A) is not None
            one.end(A)

            async def begins() -> bool:
                return await other.begin(A) is None

            await until(begins)
            assert await one.begin(A) is not None

    redis.empty()
    on(work)


def test_calls_of_a_server_that_dies_count_no_more(redis: RedisServer) -> None:
    async def work() -> None:
        most = Allowance(sessions=1)
        dead = RedisUse(open_redis(redis.url, "limits_store"), lease=2.0)
        limits = Limits(most)
        limits.begin(A, 0.0)
        await dead.report({}, "", {}, everything=True)
        assert await dead.begin(limits.claims(A, call=True), "") == []
        async with one_server(redis.url, most) as other:
            assert await other.begin(A) is not None

            async def begins() -> bool:
                return await other.begin(A) is None

            await until(begins)
        await dead.aclose()

    redis.empty()
    on(work)


def test_audio_counts_at_all_servers(redis: RedisServer) -> None:
    async def work() -> None:
        most = Allowance(audio_s=10)
        tallies = [DayTally(lambda: "Monday") for _ in range(2)]
        async with (
            one_server(redis.url, most, tally=tallies[0]) as one,
            one_server(redis.url, most, tally=tallies[1]) as other,
        ):
            assert await one.begin(A) is None and await other.begin(A) is None
            hear, listen = one.meter(A), other.meter(A)
            assert hear and listen and one.meter(()) is None
            hear(6.0)
            listen(1.0)

            async def is_known() -> bool:
                return tallies[1].total("audio:key:a") == 7.0

            await until(is_known)
            with pytest.raises(Exception, match="no more audio on one day than 10 s"):
                listen(4.0)

            async def is_refused() -> bool:
                one.end(A)
                return await one.begin(A) is not None

            await until(is_refused)
        async with one_server(redis.url, most, tally=DayTally(lambda: "Monday")) as restarted:
            denial = await restarted.begin(A)
            assert denial is not None and "no more audio" in denial.reason
        async with one_server(redis.url, most, tally=DayTally(lambda: "Tuesday")) as restarted:
            assert await restarted.begin(A) is None

    redis.empty()
    on(work)


def test_budgets_of_keys_and_days_count_at_all_servers(redis: RedisServer) -> None:
    async def work() -> None:
        plan = BudgetPlan(key=BudgetLimit(tokens=100), day=BudgetLimit(cost=10.0))
        tallies = [DayTally(), DayTally()]
        async with (
            one_server(redis.url, Allowance(), tally=tallies[0]),
            one_server(redis.url, Allowance(), tally=tallies[1]),
        ):
            here, there = (Budgets(plan, tally) for tally in tallies)
            here.of("one").spend(90, cost=4.0)
            call, other = there.of("one"), there.of("two")

            async def is_known() -> bool:
                return call.share == 0.9 and other.share == 0.4

            await until(is_known)
            call.spend(20, cost=6.0)
            assert call.spent == "key" and other.spent == "day"

    redis.empty()
    on(work)


def test_many_addresses_count_at_all_servers_also_where_redis_has_lost_them(
    redis: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(day_tally, "MOST_REPORTED", 20)
    monkeypatch.setattr(shared, "REPORT_S", 0.1)

    async def work() -> None:
        plan = BudgetPlan(address=BudgetLimit(tokens=100))
        tallies = [DayTally(lambda: "Monday") for _ in range(3)]
        addresses = [f"192.0.2.{number}" for number in range(70)]
        here, there, later = (Budgets(plan, tally) for tally in tallies)

        async def know(budgets: Budgets) -> None:
            calls = [budgets.of("", address) for address in addresses]

            async def all_known() -> bool:
                return all(call.spent == "address" for call in calls)

            await until(all_known)

        async with one_server(redis.url, Allowance(), tally=tallies[0]):
            for address in addresses:
                here.of("", address).spend(100)
            async with one_server(redis.url, Allowance(), tally=tallies[1]):
                await know(there)
            await asyncio.to_thread(redis.empty)
            async with one_server(redis.url, Allowance(), tally=tallies[2]):
                await know(later)

    redis.empty()
    on(work)


@pytest.mark.parametrize("closed", [False, True])
def test_without_its_store_each_server_applies_its_own_limits_or_none_begins(
    tmp_path: Path, closed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def work() -> None:
        most = Allowance(sessions=2)
        async with one_server(server.url, most, closed=closed) as one:
            assert await one.begin(A) is None
            server.kill()
            assert await one.begin(A) == (UNCHECKED if closed else None)
            assert await one.begin(("key:b",)) == (UNCHECKED if closed else None)
            if not closed:
                denial = await one.begin(A)
                assert denial is not None and denial.status == 429, "its own limits hold"
                one.end(A)
            assert await one.begin(()) is None, "what has no limit begins"
            server.start()

            async def is_back() -> bool:
                return "answers again" in caplog.text

            await until(is_back)
            async with one_server(server.url, most) as other:
                assert await other.begin(A) is None
                denial = await other.begin(A)
                assert denial is not None and denial.status == 429, "that of the first server counts again"

    caplog.set_level("INFO")
    with redis_server(tmp_path) as server:
        on(work)
    assert caplog.text.count("limits_store does not answer") == 1


def test_store_that_hangs_holds_up_one_call_and_no_second(tmp_path: Path) -> None:
    async def work() -> None:
        loop = asyncio.get_running_loop()
        async with one_server(server.url, Allowance(sessions=9)) as one:
            server.hang()
            assert await one.begin(A) is None
            began = loop.time()
            for _ in range(5):
                assert await one.begin(A) is None
            assert loop.time() - began < shared.LIMITS_WAIT_S, "none of them has waited"
            server.go_on()

    with redis_server(tmp_path) as server:
        on(work)


def test_store_that_loses_its_data_gets_it_again(redis: RedisServer) -> None:
    async def work() -> None:
        most = Allowance(sessions=1)
        async with one_server(redis.url, most) as one, one_server(redis.url, most) as other:
            assert await one.begin(A) is None
            async with Redis.from_url(redis.url) as client:
                await client.flushdb()

                async def knows() -> bool:
                    return bool(await client.exists("rejoinder:limits:calls:key:a"))

                await until(knows)
            assert await other.begin(A) is not None

    redis.empty()
    on(work)


def test_call_that_is_cancelled_while_the_store_is_asked_does_not_count(tmp_path: Path) -> None:
    async def work() -> None:
        most = Allowance(sessions=1)
        async with one_server(server.url, most) as one, one_server(server.url, most) as other:
            server.hang()
            asking = asyncio.create_task(one.begin(A))
            await asyncio.sleep(0.05)
            asking.cancel()
            await asyncio.wait([asking])
            server.go_on()

            async def begins() -> bool:
                return await other.begin(A) is None

            await until(begins)

    with redis_server(tmp_path) as server:
        on(work)


@pytest.mark.parametrize("url", ["mysql://here", "redis://:a/b@here:x"])
def test_wrong_store_is_refused_at_the_start(url: str) -> None:
    settings = Settings.model_validate({"limits_store": url})
    with pytest.raises(ConfigError, match="limits_store"):
        open_limiter(settings, Keys([], lambda: 0.0), DayTally(), None)


# --- real servers ---------------------------------------------------------------------------------------


def two(tmp_path: Path, **settings: str) -> tuple[Any, Any]:
    (tmp_path / "second").mkdir()
    return serving(tmp_path, **settings), serving(tmp_path / "second", **settings)


def shown(key: str) -> dict[str, Any]:
    return {"additional_headers": {"Authorization": f"Bearer {key}"}}


def pcm(server: Server) -> AbstractContextManager[ClientConnection]:
    url = f"ws://127.0.0.1:{server.port}/v1/pcm"
    return connect(url, proxy=None, additional_headers={"Authorization": f"Bearer {KEY}"})


def minted(server: Server, session: dict[str, Any]) -> str:
    url, body = f"{server.http}/v1/realtime/client_secrets", json.dumps({"session": session}).encode()
    request = urllib.request.Request(url, body, {"Authorization": f"Bearer {KEY}"}, method="POST")
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        return str(json.load(answer)["value"])


def test_key_and_its_secrets_have_one_limit_at_two_servers(tmp_path: Path, redis: RedisServer) -> None:
    redis.empty()
    settings = {"api_keys": f"{hashed(KEY)}:1:0", "limits_store": redis.url}
    one, other = two(tmp_path, **settings)
    with one as first, other as second:
        secret = minted(first, {"type": "realtime", "instructions": "Be a baker."})
        protocols = {"subprotocols": ["realtime", f"{PROTOCOL}{secret}"]}
        with Talk(second, **protocols) as talk:
            created = next(event for event in talk.seen if event["type"] == "session.created")
            assert created["session"]["instructions"] == "Be a baker.", "the session that the first one knows"
            with pytest.raises(InvalidStatus) as refusal:
                first.call(**shown(KEY)).__enter__()
            answer = refusal.value.response
            assert answer.status_code == 429 and b"at once than 1" in answer.body
            assert talk.turn()["status"] == "completed"
        while True:
            try:
                with Talk(first, **shown(KEY)) as again:
                    assert again.turn()["status"] == "completed"
                break
            except InvalidStatus as early:
                assert early.response.status_code == 429, "the end of the call is on its way"
                time.sleep(0.05)


def test_call_ends_when_its_key_has_sent_all_its_audio(tmp_path: Path, redis: RedisServer) -> None:
    redis.empty()
    settings = {"api_keys": f"{hashed(KEY)}:0:0:4", "limits_store": redis.url}
    one, other = two(tmp_path, **settings)
    with one as first, other as second:
        with Talk(first, **shown(KEY)) as talk:
            assert talk.turn()["status"] == "completed"  # 1.8 s
        with Talk(second, **shown(KEY)) as talk, pytest.raises(ConnectionClosed) as closed:
            while True:
                talk.turn()
        assert closed.value.rcvd is not None and closed.value.rcvd.reason == NO_AUDIO
        talk.read_to_end()  # the close may be noticed by a send, before all is read
        errors = [event["error"] for event in talk.seen if event["type"] == "error"]
        assert [(error["code"], error["message"]) for error in errors] == [("session_expired", NO_AUDIO)]
        with pytest.raises(InvalidStatus) as refusal:
            pcm(second).__enter__()
        assert refusal.value.response.status_code == 429 and NO_AUDIO.encode() in refusal.value.response.body


def test_pcm_call_ends_when_its_key_has_sent_all_its_audio(tmp_path: Path) -> None:
    with serving(tmp_path, api_keys=f"{hashed(KEY)}:0:0:2") as server, pcm(server) as socket:
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                socket.send(bytes(16_000))
                time.sleep(0.01)
        assert closed.value.rcvd is not None
        assert closed.value.rcvd.reason == NO_AUDIO.replace("4 s", "2 s")


def test_server_knows_no_secret_of_a_key_that_it_does_not_have(tmp_path: Path, redis: RedisServer) -> None:
    redis.empty()
    (tmp_path / "second").mkdir()
    with (
        serving(tmp_path, api_keys=hashed(KEY), limits_store=redis.url) as first,
        serving(tmp_path / "second", api_keys=hashed("rj_other"), limits_store=redis.url) as second,
    ):
        protocols = {"subprotocols": ["realtime", f"{PROTOCOL}{minted(first, {})}"]}
        with Talk(first, **protocols):
            pass
        with pytest.raises(InvalidStatus) as refusal:
            second.call(**protocols).__enter__()
        assert refusal.value.response.status_code == 401


def test_secret_that_cannot_be_looked_up_is_not_called_wrong(tmp_path: Path) -> None:
    with redis_server(tmp_path) as store:
        settings = {"api_keys": hashed(KEY), "limits_store": store.url}
        one, other = two(tmp_path, **settings)
        with one as first, other as second:
            protocols = {"subprotocols": ["realtime", f"{PROTOCOL}{minted(first, {})}"]}
            store.kill()
            with pytest.raises(InvalidStatus) as refusal:
                second.call(**protocols).__enter__()
            assert refusal.value.response.status_code == 503 and refusal.value.response.headers["Retry-After"]
            with Talk(first, **protocols):
                pass


def test_call_that_a_full_server_passes_on_is_not_counted_there(tmp_path: Path, redis: RedisServer) -> None:
    redis.empty()
    keys = f"{hashed(KEY)}:1:2 {hashed('rj_other')}"
    settings = {"api_keys": keys, "limits_store": redis.url, "max_sessions": "1", "behind_balancer": "true"}
    one, other = two(tmp_path, **settings)
    with one as first, other as second, Talk(first, **shown("rj_other")):
        for _ in range(3):
            with pytest.raises(InvalidStatus) as refusal:
                first.call(**shown(KEY)).__enter__()
            assert refusal.value.response.status_code == 503
        with Talk(second, **shown(KEY)) as talk:
            assert talk.turn()["status"] == "completed"


def test_conversation_goes_on_elsewhere_though_its_key_is_at_its_limit(
    tmp_path: Path, redis: RedisServer
) -> None:
    redis.empty()
    settings = {"api_keys": f"{hashed(KEY)}:1:1", "limits_store": redis.url, "conversations": redis.url}
    (tmp_path / "second").mkdir()
    with (
        serving(tmp_path, clean=False, **settings) as first,
        serving(tmp_path / "second", **settings) as second,
        Talk(first, **shown(KEY)) as talk,
    ):
        talk.turn()
        first.process.kill()
        first.process.wait(20.0)
        with Talk(second, query=f"&conversation_id={conversation(talk)}", **shown(KEY)) as after:
            after.until("rejoinder.resumed")
            with pytest.raises(InvalidStatus) as refusal:
                second.call(**shown(KEY)).__enter__()
            assert refusal.value.response.status_code == 429, "it counts there"


def test_requests_without_a_limit_need_no_store() -> None:
    async def work() -> None:
        async with one_server("redis://127.0.0.1:1", Allowance(sessions=1), closed=True) as one:
            assert await one.begin(A, call=False) is None
            assert await one.begin(A) == UNCHECKED

    on(work)
