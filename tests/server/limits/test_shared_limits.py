"""The limits of several servers with one store: a real Redis, which is killed, stopped and emptied."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redis.asyncio import Redis
from support.servers.redis import RedisServer, redis_server

from rejoinder.agent.config import ConfigError, Settings
from rejoinder.agent.faults import FAULTS, LIMITS_FAULT
from rejoinder.agent.metrics.meters import Meters
from rejoinder.agent.server.keys import Keys
from rejoinder.agent.server.limiting import shared_limits
from rejoinder.agent.server.limiting.admission import CallAdmission, open_admission
from rejoinder.agent.server.limiting.allowance import BUSY_SECONDS, NO_LIMITS, Allowance, Use, refused_use
from rejoinder.agent.server.limiting.limits import Limits
from rejoinder.agent.server.limiting.redis_counters import Beginning, RedisCounters
from rejoinder.agent.server.limiting.shared_limits import UNCHECKED, SharedLimits
from rejoinder.agent.server.limiting.shared_use import KNOWN_S, SharedUse, UseReport

pytestmark = pytest.mark.server
LONG_LEASE = 600.0


@pytest.fixture(autouse=True)
def reports_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rejoinder.agent.server.limiting.shared_limits.REPORT_S", 0.05)
    monkeypatch.setattr("rejoinder.agent.server.limiting.shared_limits.RENEW_S", 0.1)


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    with redis_server(tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(autouse=True)
def busy_machine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait long for a store that is there, except in a test of one that is not."""
    if "fault" not in request.fixturenames:
        monkeypatch.setattr(shared_limits, "LIMITS_WAIT_S", 20.0)
        monkeypatch.setattr("rejoinder.models.redis_server.REDIS_ANSWER_S", 20.0)


@pytest.fixture
def store(own: RedisServer) -> Iterator[RedisServer]:
    """A Redis that a test may kill and stop. It runs, and is empty, before and after."""
    own.empty()
    yield own
    own.kill()
    own.start()


@dataclass
class OneServer:
    """The limits of one server. here: whether the store answers, as its metric says."""

    admission: CallAdmission
    shared: SharedLimits
    here: list[bool]

    async def calls(self, most: int, owner: str = "a") -> int:
        """Begin calls of a key until one is refused, at most ``most``; return how many have begun."""
        for number in range(most):
            if await self.admission.begin(owner, ""):
                return number
        return most


@asynccontextmanager
async def one_server(
    url: str,
    allowance: Allowance = NO_LIMITS,
    address: Allowance = NO_LIMITS,
    closed: bool = False,
    lease: float = LONG_LEASE,
) -> AsyncIterator[OneServer]:
    here: list[bool] = []
    shared = SharedLimits(RedisCounters(url, lease), closed, here.append)
    keys = Limits(allowance, shared=shared.keys)
    addresses = Limits(address, whose="this address", shared=shared.addresses)
    admission = CallAdmission(keys, addresses, shared)
    async with admission.running():
        yield OneServer(admission, shared, here)


def with_two(
    url: str,
    work: Callable[[OneServer, OneServer], Awaitable[None]],
    *limits: Allowance,
    closed: bool = False,
) -> None:
    async def run() -> None:
        async with one_server(url, *limits, closed=closed) as one:
            async with one_server(url, *limits, closed=closed) as other:
                await work(one, other)

    asyncio.run(run())


async def until(true: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(30.0):
        while True:
            if await true():
                return
            await asyncio.sleep(0.02)


def test_calls_of_a_key_are_limited_at_all_servers_together(store: RedisServer) -> None:
    async def work(one: OneServer, other: OneServer) -> None:
        assert await one.calls(5) == 2
        refused = await other.admission.begin("a", "")
        assert refused and (refused.status, refused.seconds) == (429, BUSY_SECONDS)
        assert refused.reason == "this key has reached its limit of calls at a time: 2"
        assert await other.calls(5, "b") == 2, "another key has calls of its own"
        one.admission.end("a", "")
        await until(lambda: begins(other))
        assert await one.calls(1) == 0
        other.admission.end("a", "")
        assert await other.calls(1) == 1, "its own server knows at once that a call has ended"

    async def begins(server: OneServer) -> bool:
        return await server.calls(1) == 1

    with_two(store.url, work, Allowance(sessions=2))


def test_as_many_calls_begin_at_the_same_moment_as_are_allowed(store: RedisServer) -> None:
    async def work(one: OneServer, other: OneServer) -> None:
        begun = await asyncio.gather(*(each.admission.begin("a", "") for each in [one, other] * 20))
        assert begun.count(None) == 7

    with_two(store.url, work, Allowance(sessions=7))


def test_many_calls_may_begin_at_once(store: RedisServer) -> None:
    """More than Redis gets connections: the others wait for one, and the store does not count as lost."""

    async def run() -> None:
        async with one_server(store.url, Allowance(sessions=200), closed=True) as one:
            begun = await asyncio.gather(*(one.admission.begin("a", "") for _ in range(150)))
            assert begun == [None] * 150 and one.here == [True]

    asyncio.run(run())


def test_calls_and_requests_of_a_minute_count_at_all_servers(store: RedisServer) -> None:
    async def work(one: OneServer, other: OneServer) -> None:
        assert await one.admission.ask("a", "") is None and await other.admission.begin("a", "") is None
        assert await one.admission.ask("a", "") is None
        for each in (one, other):
            for refused in (await each.admission.ask("a", ""), await each.admission.begin("a", "")):
                assert refused and "in a minute: 3" in refused.reason and 30 < refused.seconds <= 60

    with_two(store.url, work, Allowance(per_minute=3))


def test_call_that_the_key_refuses_does_not_count_for_the_address(store: RedisServer) -> None:
    async def work(one: OneServer, other: OneServer) -> None:
        assert await one.admission.begin("a", "192.0.2.1") is None
        assert all([await other.admission.begin("a", "192.0.2.1") for _ in range(5)])
        assert await other.admission.begin("b", "192.0.2.1") is None
        refused = await one.admission.begin("c", "192.0.2.1")
        assert refused and refused.reason.startswith("this address")
        assert await one.admission.connect("192.0.2.1"), (
            "a connection to a port without HTTP counts there, too"
        )
        assert await one.admission.connect("192.0.2.2") is None

    with_two(store.url, work, Allowance(sessions=1), Allowance(sessions=2))


@pytest.mark.parametrize("what", ["audio", "tokens"])
def test_use_of_a_day_counts_at_all_servers(store: RedisServer, what: str) -> None:
    async def work(one: OneServer, other: OneServer) -> None:
        for each in (one, other):
            assert await each.admission.begin("a", "") is None
        spend(one, 60)
        await until(lambda: knows(other, 60))
        assert spend(other, 39)
        await until(lambda: knows(one, 99))
        assert spend(one, 1)
        await until(lambda: knows(other, 100))
        assert not spend(other, 1)
        refused = await other.admission.begin("a", "")
        assert refused and f"limit of {what} in a day: 100" in refused.reason
        assert 23 * 3600 <= refused.seconds <= 24 * 3600

    def spend(server: OneServer, amount: int) -> bool:
        keys, now = server.admission.keys, time.monotonic()
        if what == "audio":
            return keys.hear("a", amount, now) is None
        free = keys.out_of_tokens("a", now) is None
        keys.use_tokens("a", amount if free else 0, now)
        return free

    async def knows(server: OneServer, amount: float) -> bool:
        """Return whether a server where the key has a call knows what all have used."""
        return float(getattr(server.shared.keys.joined("a", Use(), time.monotonic()), what)) >= amount

    with_two(store.url, work, Allowance(sessions=9, **{what: 100}))


def test_limits_outlive_a_server(store: RedisServer) -> None:
    """The calls of one that ends in order are free at once. What it has used of a day stays."""

    async def run() -> None:
        async with one_server(store.url, Allowance(sessions=1, tokens=10)) as one:
            assert await one.calls(2) == 1
            one.admission.keys.use_tokens("a", 10, time.monotonic())
            one.admission.end("a", "")
        async with one_server(store.url, Allowance(sessions=1, tokens=10)) as again:
            refused = await again.admission.begin("a", "")
            assert refused and "tokens" in refused.reason

    asyncio.run(run())


def test_call_is_free_some_time_after_its_server_was_seen(store: RedisServer) -> None:
    """A lease that is renewed lasts, and one that is not renewed ends."""

    async def run() -> None:
        async with one_server(store.url, Allowance(sessions=1), lease=2.0) as one:
            gone = RedisCounters(store.url, lease=0.1)
            begun = Beginning("key", "b", "dead-1", Allowance(sessions=1), True, True)
            assert await gone.begin([begun]) == [Use()]
            await gone.aclose()
            assert await one.calls(1) == 1
            for _ in range(6):  # a refusal renews nothing
                await asyncio.sleep(0.5)
                assert await one.calls(1) == 0
            async with one_server(store.url, Allowance(sessions=1)) as other:
                assert (await other.calls(1), await other.calls(1, "b")) == (0, 1)

    asyncio.run(run())


@pytest.mark.parametrize("fault", ["killed", "hangs"])
def test_without_the_store_each_server_counts_by_itself_or_refuses(
    store: RedisServer, fault: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    monkeypatch.setattr("rejoinder.models.redis_server.REDIS_ANSWER_S", 20.0)

    def wait_for_the_store(seconds: float) -> None:
        monkeypatch.setattr(shared_limits, "LIMITS_WAIT_S", seconds)

    wait_for_the_store(20.0)

    async def work(lenient: OneServer, strict: OneServer) -> None:
        faults = FAULTS[LIMITS_FAULT]
        assert (await lenient.calls(1), await strict.calls(1)) == (1, 1)
        wait_for_the_store(0.5)
        store.kill() if fault == "killed" else store.hang()
        began = time.monotonic()
        assert await lenient.calls(5) == 1, "of two calls, one runs already at this server"
        assert await strict.admission.begin("a", "") == UNCHECKED
        for _ in range(100):
            assert await strict.admission.begin("a", "") == UNCHECKED
        assert time.monotonic() - began < 20.0, "each server has waited once: not 50 s"
        assert await strict.admission.ask("a", "") is None, "it has no limit"
        assert await strict.admission.begin("", "192.0.2.1") is None
        assert (lenient.here[-1], strict.here[-1]) == (False, False)
        assert FAULTS[LIMITS_FAULT] == faults + 2
        store.start() if fault == "killed" else store.go_on()
        wait_for_the_store(20.0)
        await until(lambda: both_here(lenient, strict))
        assert await strict.calls(1) == 0, "three calls of two run, and the store knows them all"
        lenient.admission.end("a", "")
        lenient.admission.end("a", "")
        await until(lambda: begins(strict))

    async def both_here(*servers: OneServer) -> bool:
        return all(server.here[-1] for server in servers)

    async def begins(server: OneServer) -> bool:
        return await server.calls(1) == 1

    async def run() -> None:
        limits = Allowance(sessions=2)
        async with one_server(store.url, limits) as lenient:
            async with one_server(store.url, limits, closed=True) as strict:
                await work(lenient, strict)

    asyncio.run(run())
    said = [record.getMessage() for record in caplog.records if "limits_store" in record.getMessage()]
    assert len(said) == 4, "one line when it is lost, and one when it is back, for each server"
    assert {line.partition(": ")[0] for line in said} == {
        "limits_store does not answer, so each server applies its own limits",
        "limits_store does not answer, so no call with a limit begins",
        "limits_store answers again",
    }


def test_server_starts_without_its_store(store: RedisServer) -> None:
    async def here(server: OneServer) -> bool:
        return server.here[-1]

    async def run() -> None:
        store.kill()
        async with one_server(store.url, Allowance(sessions=2)) as one:
            assert one.here == [False]
            assert await one.calls(5) == 2
            store.start()
            await until(lambda: here(one))
            async with one_server(store.url, Allowance(sessions=2)) as other:
                assert await other.calls(1) == 0

    asyncio.run(run())


def test_calls_that_go_on_count_again_after_the_store_has_lost_them(store: RedisServer) -> None:
    async def work(one: OneServer, other: OneServer) -> None:
        assert await one.calls(2) == 2
        async with Redis.from_url(store.url) as client:
            await client.flushdb()
            await until(lambda: renewed(client))
        assert await other.calls(1) == 0

    async def renewed(client: Redis) -> bool:
        return bool(await client.keys("*:calls"))

    with_two(store.url, work, Allowance(sessions=2))


def test_cancelled_begin_counts_nothing(store: RedisServer) -> None:
    async def work(one: OneServer, other: OneServer) -> None:
        for steps in range(12):
            begun = asyncio.create_task(one.admission.begin("a", ""))
            for _ in range(steps):
                await asyncio.sleep(0)
            begun.cancel()
            await asyncio.wait([begun])
            if not begun.cancelled():
                one.admission.end("a", "")
            await until(free)

    async def free() -> bool:
        async with Redis.from_url(store.url) as client:
            return not await client.keys("*:calls")

    with_two(store.url, work, Allowance(sessions=1))


def test_keys_in_the_store_go_by_themselves(store: RedisServer) -> None:
    async def run() -> None:
        allowance = Allowance(9, 9, 99, 99)
        async with one_server(store.url, allowance, allowance) as one:
            assert await one.admission.begin("a", "192.0.2.1") is None
            one.admission.keys.hear("a", 1.0, time.monotonic())
            one.admission.keys.use_tokens("a", 1, time.monotonic())
        async with Redis.from_url(store.url) as client:
            names = await client.keys("rejoinder:limits:[ak]*")
            assert len(names) == 6
            for name in names:
                assert 0 < await client.ttl(name) <= 25 * 3600, name

    asyncio.run(run())


LIMIT = st.integers(0, 3)
WISHES = st.tuples(st.sampled_from("ab"), st.sampled_from("xy"), st.sampled_from(["begin", "ask", "end"]))


@settings(max_examples=25)
@given(st.lists(WISHES, max_size=25), st.builds(Allowance, LIMIT, LIMIT), st.builds(Allowance, LIMIT, LIMIT))
def test_store_decides_as_one_server_would(
    redis: RedisServer, done: list[tuple[str, str, str]], of_key: Allowance, of_address: Allowance
) -> None:
    """The script counts what the plain function allows: two servers in turn behave as one without a store."""

    async def run() -> None:
        alone = CallAdmission(Limits(of_key), Limits(of_address, whose="this address"))
        held: list[tuple[CallAdmission, str, str]] = []
        limits = of_key, of_address
        async with one_server(redis.url, *limits) as one, one_server(redis.url, *limits) as other:
            for number, (owner, address, what) in enumerate(done):
                server = (one, other)[number % 2].admission
                if what == "end":
                    if held:
                        at, *who = held.pop()
                        at.end(*who)
                        alone.end(*who)
                        await (one if at is one.admission else other).shared._report()
                    continue
                wish = CallAdmission.begin if what == "begin" else CallAdmission.ask
                refused, expected = await wish(server, owner, address), await wish(alone, owner, address)
                assert (refused is None) == (expected is None), (number, refused, expected)
                if not refused and what == "begin":
                    held.append((server, owner, address))

    redis.empty()
    asyncio.run(run())


@pytest.mark.parametrize(
    ("allowance", "report"),
    [
        (Allowance(audio=10), UseReport("a", audio=10.0)),
        (Allowance(audio=1), UseReport("a", audio=0.1 + 0.2 + 0.7)),
        (Allowance(tokens=10), UseReport("a", tokens=10.0)),
        (Allowance(tokens=11), UseReport("a", tokens=10.0)),
    ],
)
def test_script_and_plain_function_agree_about_a_day(
    redis: RedisServer, allowance: Allowance, report: UseReport
) -> None:
    async def run() -> None:
        counters = RedisCounters(redis.url)
        (use,) = await counters.report("key", [report])
        for name in ("n1", "n2"):
            (use,) = await counters.begin([Beginning("key", "a", name, allowance, True, True)]) or [None]
        assert use
        refused = refused_use(allowance, use, "this key")
        async with Redis.from_url(redis.url) as client:
            assert await client.exists("rejoinder:limits:key:a:audio", "rejoinder:limits:key:a:tokens") == 1
        assert (refused is None) == (
            math.fsum((report.audio, report.tokens)) < max(allowance.audio, allowance.tokens)
        )
        await counters.aclose()

    redis.empty()
    asyncio.run(run())


def test_hours_before_the_last_day_no_longer_count(redis: RedisServer) -> None:
    async def run() -> None:
        counters, key = RedisCounters(redis.url), "rejoinder:limits:key:a:audio"
        async with Redis.from_url(redis.url) as client:
            hour = int((await client.time())[0]) // 3600
            await client.hset(key, mapping={str(hour - 24): "5", str(hour - 23): "7", str(hour): "1.5"})
            (use,) = await counters.report("key", [UseReport("a", audio=0.25)])
            assert use and use.audio == 8.75 and 0.0 < use.audio_again <= 3600.0
            assert sorted(map(int, await client.hkeys(key))) == [hour - 23, hour]
        await counters.aclose()

    redis.empty()
    asyncio.run(run())


def test_one_owner_without_usable_counts_fails_alone(redis: RedisServer) -> None:
    async def run() -> None:
        allowance = Allowance(sessions=9, audio=100)
        async with Redis.from_url(redis.url) as client, one_server(redis.url, allowance) as one:
            await client.set("rejoinder:limits:key:bad:audio", "text")
            for owner in ("good", "bad"):
                assert one.admission.keys.hear(owner, 5.0, time.monotonic()) is None
            for _ in range(3):
                assert await one.shared._report() is None
            assert await one.admission.begin("bad", "") is None, "this server's own use decides"
            (use,) = await one.shared._counters.report("key", [UseReport("good")])
            assert use and use.audio == 5.0 and one.here == [True]

    redis.empty()
    asyncio.run(run())


def test_redis_that_only_reads_counts_as_away(store: RedisServer) -> None:
    async def run() -> None:
        async with Redis.from_url(store.url) as client:
            await client.execute_command("REPLICAOF", "127.0.0.1", "1")
            try:
                async with one_server(store.url, Allowance(sessions=2)) as one:
                    assert await one.calls(3) == 2 and one.here == [False]
            finally:
                await client.execute_command("REPLICAOF", "NO", "ONE")

    asyncio.run(run())


def test_url_that_is_none_is_refused() -> None:
    for url in ("sqlite:limits.db", "redis://host:port"):
        with pytest.raises(ConfigError, match="limits_store"):
            open_admission(Settings(limits_store=url), Meters(), Keys([], lambda: 0.0))  # type: ignore[arg-type]


# --- what one server remembers, without a store -----------------------------------------------------------


def test_use_at_all_servers_counts_while_it_is_new() -> None:
    use, here = SharedUse("key"), Use(audio=5.0, tokens=1.0)
    assert use.joined("a", here, 0.0) == here
    use.spend("a", audio=3.0)
    use.learn("a", Use(audio=50.0, audio_again=7.0), 100.0)
    joined = use.joined("a", here, 101.0)
    assert (joined.audio, joined.audio_again, joined.tokens) == (53.0, 7.0, 1.0)
    (report,) = use.reports(everything=False)
    use.spend("a", audio=1.0)
    use.told(report, Use(audio=53.0), 102.0)
    assert use.joined("a", here, 103.0).audio == 54.0, "what was used meanwhile is still to be told"
    assert use.joined("a", here, 102.0 + KNOWN_S) == here
    use.told(use.reports(everything=False)[0], Use(audio=54.0), 103.0)
    use.forget(104.0)
    assert use.joined("a", here, 104.0).audio == 54.0
    use.forget(103.0 + KNOWN_S)
    assert not use._owners


def test_calls_that_begin_and_end_during_a_report_are_reported_next() -> None:
    woken: list[bool] = []
    use = SharedUse("key", lambda: woken.append(True))
    use.hold("a", "first")
    assert not woken and use.reports(everything=False) == [], "the store has counted it"
    use.release("a")
    (report,) = use.reports(everything=False)
    assert report.released == ("first",) == use.released("a") and woken
    use.hold("a")
    use.release("b"), use.release("a", "refused")
    use.told(report, Use(), 0.0)
    (report,) = use.reports(everything=False)
    assert len(report.held) == 1 and report.released == ("refused",)
    use.told(report, Use(), 0.0)
    assert use.reports(everything=False) == [] and len(use.reports(everything=True)) == 1
