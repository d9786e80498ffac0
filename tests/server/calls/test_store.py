"""Calls in a real SQLite file: its limits, its filters, and a file that is locked, full or broken."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.servers.in_process import until

from rejoinder.agent.app.call import CallInfo
from rejoinder.agent.config import Settings
from rejoinder.agent.metrics.meters import Meters
from rejoinder.agent.server.calls import keeper as keeping
from rejoinder.agent.server.calls import store as storing
from rejoinder.agent.server.calls.book import CallBook
from rejoinder.agent.server.calls.filters import CallFilter
from rejoinder.agent.server.calls.keeper import CallKeeper
from rejoinder.agent.server.calls.kept import KeptCall
from rejoinder.agent.server.calls.record import CallRecord, TurnRecord
from rejoinder.agent.server.calls.store import CallStore, CannotOpen, StoreLimits
from rejoinder.pipeline import ProtocolError, Trace

NOW = 1_700_000_000.0
DAY = 86_400.0
LIMITS = StoreLimits(30.0, 2**20)


def record(
    began: float = NOW, said: str = "", wire: str = "pcm", ms: float = 0.0, error: str = ""
) -> CallRecord:
    made = CallRecord.of(CallInfo(f"sess_{began:.0f}", wire), began)
    trace = Trace(1, marks={"speech_ended": 1.0, "audio_sent": 1.0 + ms / 1000.0}) if ms else None
    made.turns = [
        TurnRecord(0.5, 1, said, text="Yes.", heard="Yes.", status="completed", trace=trace, latency_ms=ms)
    ]
    made.seconds, made.error = 2.0, error
    return made


def kept_call(*given: Any, **named: Any) -> KeptCall:
    return KeptCall.of(record(*given, **named))


def opened(path: Path, limits: StoreLimits = LIMITS, now: float = NOW) -> CallStore:
    return CallStore(path, limits, lambda: now)


def using(store: CallStore, use: Callable[[CallStore], Awaitable[Any]]) -> Any:
    async def main() -> Any:
        try:
            return await use(store)
        finally:
            await store.aclose()

    return asyncio.run(main())


def began(calls: list[dict[str, Any]]) -> list[float]:
    return [call["began"] - NOW for call in calls]


def test_calls_are_found_by_what_they_have_in_common_and_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "new" / "calls.db"

    async def put(store: CallStore) -> None:
        await store.put(kept_call(NOW, "Straße und Weg"))
        await store.put(kept_call(NOW + 1, "50% off_", "Twilio", ms=900.0))
        await store.put(kept_call(NOW + 2, "hello", error="overloaded"))

    async def find(store: CallStore) -> None:
        async def of(**query: str) -> list[float]:
            return began(await store.summaries(CallFilter.of(query)))

        assert await of() == [2, 1, 0]
        assert await of(limit="2") == [2, 1] and await of(before=str(NOW + 1)) == [0]
        assert await of(wire="Twilio") == [1] and await of(since=str(NOW + 1)) == [2, 1]
        assert await of(errors="1") == [2] and await of(slow_ms="800") == [1]
        assert (
            await of(words="STRASSE UND") == [0] and await of(words="%") == [1] and await of(words="'") == []
        )
        ((id_, began_at, body),) = await store.bodies(CallFilter(words="hello"))
        assert (json.loads(body)["id"], began_at) == (id_, NOW + 2) and await store.get(id_) == body
        assert await store.get(f"sess_{NOW + 2:.0f}") == body, "by the call's own id, as in the log"
        assert await store.get("") is None

    using(opened(path), put)
    assert path.stat().st_mode & 0o777 == 0o600, "words of callers are the server's alone"
    using(opened(path), find)


def test_old_calls_and_bytes_beyond_the_limit_are_gone_from_the_file(tmp_path: Path) -> None:
    path = tmp_path / "calls.db"

    async def put(store: CallStore) -> None:
        await store.put(kept_call(NOW - 31 * DAY, "secret of long ago"))
        for number in range(40):
            await store.put(kept_call(NOW + number, f"number {number} " + "word " * 4000))

    async def find(store: CallStore) -> list[float]:
        return began(await store.summaries(CallFilter(limit=200)))

    using(opened(path), put)
    kept = using(opened(path), find)
    assert kept == [float(39 - place) for place in range(len(kept))] and 10 < len(kept) < 30
    sizes = [file.stat().st_size for file in tmp_path.iterdir()]
    assert sum(sizes) < 1.5 * LIMITS.bytes
    assert b"secret of long ago" not in path.read_bytes()

    async def later(store: CallStore) -> list[float]:
        await store.trim()
        return await find(store)

    assert using(opened(path, now=NOW + 31 * DAY), later) == []


def test_search_that_takes_too_long_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storing, "SEARCH_S", -1.0)

    async def find(store: CallStore) -> None:
        for number in range(30):
            await store.put(kept_call(NOW + number, "word " * 3000))
        with pytest.raises(sqlite3.OperationalError, match="interrupted"):
            await store.summaries(CallFilter(words="nowhere"))
        monkeypatch.setattr(storing, "SEARCH_S", 60.0)
        assert await store.summaries(CallFilter(words="nowhere")) == []

    using(opened(tmp_path / "calls.db"), find)


def test_file_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text.db").write_text("This is no database, but a text that is long enough to be one." * 20)
    with pytest.raises(CannotOpen, match="not a database"):
        opened(tmp_path / "text.db")
    with closing(sqlite3.connect(tmp_path / "later.db")) as db:
        db.execute("PRAGMA user_version = 7")
    with pytest.raises(CannotOpen, match="version 7"):
        opened(tmp_path / "later.db")
    with pytest.raises(CannotOpen, match="cannot open"):
        opened(tmp_path)


@pytest.mark.parametrize("query", [{"since": "monday"}, {"limit": "inf"}, {"slow_ms": "nan"}])
def test_filter_that_is_no_number_is_refused(query: dict[str, str]) -> None:
    with pytest.raises(ProtocolError, match="has to be a number"):
        CallFilter.of(query)


# --- the keeper ---------------------------------------------------------------------------------------------


class Kept:
    """A keeper, and what it counts."""

    def __init__(
        self, store: CallStore | None, prepare: Callable[[CallRecord], KeptCall] = KeptCall.of
    ) -> None:
        self.outcomes: list[str] = []
        self.kept: list[KeptCall] = []
        self.forgotten: list[CallRecord] = []

        def keep(record: CallRecord, call: KeptCall) -> None:
            assert record not in self.forgotten, "it is shown without a gap"
            self.kept.append(call)

        self.keeper = CallKeeper(store, prepare, self.outcomes.append, keep, self.forgotten.append)


def test_locked_database_is_tried_again_and_warned_of_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("rejoinder.models.sqlite_file.SQLITE_BUSY_S", 0.01)
    monkeypatch.setattr(keeping, "FIRST_RETRY_S", 0.01)
    caplog.set_level(logging.INFO, keeping.__name__)
    path = tmp_path / "calls.db"

    async def main() -> list[str]:
        kept = Kept(opened(path))
        other = sqlite3.connect(path, isolation_level=None)
        async with kept.keeper.running():
            await asyncio.sleep(0)
            other.execute("BEGIN IMMEDIATE")
            assert kept.keeper.give(record(NOW, "first")) and kept.keeper.give(record(NOW + 1, "second"))
            await until(lambda: kept.outcomes.count("failed") >= 2)
            other.execute("ROLLBACK")
            other.close()
            await until(lambda: kept.outcomes.count("kept") == 2)
        return kept.outcomes

    outcomes = asyncio.run(main())
    assert "dropped" not in outcomes
    warned = [one.getMessage() for one in caplog.records if "not kept now" in one.getMessage()]
    assert len(warned) == 1 and "locked" in warned[0]
    assert "calls are kept again" in caplog.messages
    found = using(opened(path), lambda store: store.summaries(CallFilter()))
    assert began(found) == [1, 0]


def test_call_whose_words_cannot_be_left_out_is_shown_no_longer() -> None:
    wrong, right = record(NOW, "My number is..."), record(NOW + 1)

    def prepare(one: CallRecord) -> KeptCall:
        if one is wrong:
            raise ValueError("a redactor failed")
        return KeptCall.of(one)

    async def main() -> Kept:
        kept = Kept(None, prepare)
        async with kept.keeper.running():
            kept.keeper.give(wrong)
            kept.keeper.give(right)
        return kept

    kept = asyncio.run(main())
    assert kept.forgotten == [wrong, right] and kept.outcomes == ["dropped"] and len(kept.kept) == 1


def test_call_that_never_runs_is_not_among_those_that_run() -> None:
    book = CallBook(Settings(calls_page=True), Meters())
    assert len(book.observe(CallInfo("sess_1"))) == 1
    assert book.live == {}


def test_full_database_costs_calls_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(keeping, "FIRST_RETRY_S", 0.01)
    monkeypatch.setattr(keeping, "MAX_WAITING_CALLS", 2)
    monkeypatch.setattr(keeping, "CLOSE_S", 0.05)
    store = opened(tmp_path / "calls.db")
    store._file.writer.execute("PRAGMA max_page_count = 10")

    async def main() -> Kept:
        kept = Kept(store)
        async with kept.keeper.running():
            await asyncio.sleep(0)
            assert kept.keeper.give(record(NOW, "x" * 200_000))
            await until(lambda: "failed" in kept.outcomes)
            assert kept.keeper.give(record(NOW + 1)) and kept.keeper.give(record(NOW + 2))
            assert not kept.keeper.give(record(NOW + 3)), "two wait already"
            await until(lambda: len(kept.forgotten) == 3)  # they are shown as ended calls
        return kept

    kept = asyncio.run(main())
    assert kept.outcomes.count("dropped") == 4 and "kept" not in kept.outcomes
    assert len(kept.kept) == 3, "they are shown from memory all the same"
    assert "full" in "".join(caplog.messages)


def test_call_that_cannot_be_written_does_not_hold_up_the_next(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broken = record(NOW, "half a character: \ud800")

    async def main() -> list[str]:
        kept = Kept(opened(tmp_path / "calls.db"))
        async with kept.keeper.running():
            kept.keeper.give(broken)
            kept.keeper.give(record(NOW + 1))
        return kept.outcomes

    assert asyncio.run(main()) == ["dropped", "kept"]
    assert any(one.exc_info for one in caplog.records)
