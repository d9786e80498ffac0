"""What the journal of one server writes into its store, and what it does while that fails."""

from __future__ import annotations

import asyncio
import json
import logging
import sqlite3
from asyncio import Future
from collections.abc import Awaitable, Callable
from pathlib import Path
from threading import Event

import pytest

from rejoinder.agent.metrics.meters import Meters
from rejoinder.agent.metrics.server_metrics import ServerMetrics
from rejoinder.agent.server.journal import journal as journal_module
from rejoinder.agent.server.journal import sqlite as sqlite_module
from rejoinder.agent.server.journal.journal import Found, Journal
from rejoinder.agent.server.journal.recorder import MAX_STATE_BYTES, ConversationRecorder, encoded_state
from rejoinder.agent.server.journal.sqlite import SqliteConversations
from rejoinder.agent.server.journal.store import JournalLimits
from rejoinder.agent.server.journal.writes import FIRST_REWRITE_S, LONGEST_REWRITE_S, retry_after
from rejoinder.agent.server.keys import Keys, hashed
from rejoinder.agent.wires.realtime.protocol import Realtime
from rejoinder.models.scripted import ScriptedLlm, ScriptedStt, ScriptedTts, ScriptedTurnModel, ScriptedVad
from rejoinder.pipeline import Models, Options, Session, open_session

KEY = "rj_the_key_of_these_tests"
KEYS = Keys([hashed(KEY)], lambda: 0.0)


class Desk:
    """A journal on a real file, and the calls that it follows."""

    def __init__(self, path: Path, session: Session) -> None:
        self.path, self.session = path, session
        self.store = SqliteConversations(path, JournalLimits(), lambda: 0.0)
        self.metrics = ServerMetrics(str, lambda: [])
        self.journal = Journal(self.store, self.metrics.meters)

    def begin(self) -> tuple[str, ConversationRecorder]:
        """Begin a call; return the id of its conversation, and its recorder."""
        wire = Realtime(Options())
        about = {"shown": hashed(KEY), "owner": hashed(KEY), "query": {}}
        recorder = self.journal.record(wire, about)
        recorder.begin(self.session)
        return wire.conversation, recorder

    def rename(self, table: str, name: str) -> None:
        """Give a table another name: what uses it fails."""
        file = sqlite3.connect(self.path)
        file.execute(f"ALTER TABLE {table} RENAME TO {name}")
        file.close()

    async def find(self, conversation: str) -> Found | None:
        """Return what another server finds."""
        store = SqliteConversations(self.path, JournalLimits(), lambda: 0.0)
        try:
            return await Journal(store, Meters()).find(conversation, KEY, KEYS)
        finally:
            await store.aclose()

    def hang(self) -> Event:
        """Let the file's thread hang until the event is set."""
        released = Event()
        self._hanging = asyncio.ensure_future(self.store._file.write(released.wait))
        self._hanging.add_done_callback(Future.exception)
        return released

    def value(self, sample: str, **labels: str) -> float | None:
        """Return the value of a metric."""
        return self.metrics.meters.registry.get_sample_value(f"rejoinder_{sample}", labels)

    async def lacks(self, conversation: str) -> bool:
        """Return whether a conversation is not in the store."""
        return await self.find(conversation) is None

    async def until(self, holds: Callable[[], Awaitable[object]]) -> None:
        """Wait until something is in the store, or is not any more."""
        async with asyncio.timeout(30.0):
            while not await holds():  # noqa: ASYNC110
                await asyncio.sleep(0.05)


@pytest.fixture(autouse=True)
def tries_again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "ALIVE_S", 0.05)


@pytest.fixture(autouse=True)
def busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait long for a file that answers."""
    for limit in ("SLOW_S", "WRITTEN_S", "FIND_S", "LAST_WRITE_S"):
        monkeypatch.setattr(journal_module, limit, 20.0)
    monkeypatch.setattr(sqlite_module, "FILE_ANSWER_S", 20.0)
    monkeypatch.setattr("rejoinder.models.sqlite_file.SQLITE_BUSY_S", 20.0)


def at(path: Path, work: Callable[[Desk], Awaitable[None]]) -> None:
    async def run() -> None:
        models = Models(ScriptedVad(), ScriptedStt([]), ScriptedLlm(), ScriptedTts(), ScriptedTurnModel())
        async with open_session(models, Options()) as session:
            desk = Desk(path / "kept.db", session)
            async with desk.journal.running():
                await work(desk)

    asyncio.run(run())


def test_conversation_that_began_while_the_store_failed_is_kept(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        desk.rename("conversations", "lost")
        conversation, recorder = desk.begin()
        await recorder.written()
        assert recorder.new, "the write has failed"
        desk.rename("lost", "conversations")
        await desk.until(lambda: desk.find(conversation))
        assert not recorder.new

    at(tmp_path, work)


def test_ended_conversations_that_cannot_be_deleted_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "MAX_ENDED", 3)

    async def work(desk: Desk) -> None:
        begun = [desk.begin() for _ in range(5)]
        await begun[-1][1].written()
        desk.rename("conversations", "lost")
        for _, recorder in begun:
            desk.journal.end(recorder, keep=False)
        _, running = desk.begin()
        await running.written()
        desk.rename("lost", "conversations")
        await desk.until(lambda: desk.lacks(begun[-1][0]))
        kept = [await desk.find(conversation) is not None for conversation, _ in begun]
        assert kept == [True, True, False, False, False], "the oldest stay until they are too old"

    at(tmp_path, work)


def test_conversation_that_has_ended_is_not_found_before_it_is_deleted(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        conversation, recorder = desk.begin()
        await recorder.written()
        assert await desk.find(conversation), "another server finds it"
        assert await desk.journal.find(conversation, KEY, KEYS) is None, "this one runs it"
        desk.journal.end(recorder, keep=False)
        assert await desk.journal.find(conversation, KEY, KEYS) is None
        await desk.until(lambda: desk.lacks(conversation))

    at(tmp_path, work)


def test_state_that_is_too_large_is_encoded_only_up_to_the_limit() -> None:
    small = {
        "version": 1,
        "config": {"a": "\u00e9"},
        "items": [[{"id": str(n)}, None] for n in range(40)],
        "open": [],
    }
    body = encoded_state(small)
    assert body is not None and json.loads(body) == small
    text, cannot_be_encoded = "x" * (MAX_STATE_BYTES // 32), object()
    assert encoded_state({"items": [*[text] * 64, cannot_be_encoded], "entries": [cannot_be_encoded]}) is None


def test_calls_do_not_wait_for_a_file_that_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The write is given up, and all is written once the file answers again."""
    caplog.set_level(logging.INFO)

    def limits(file: float, write: float) -> None:
        monkeypatch.setattr(desks[0].store._file._writing, "_seconds", file)
        monkeypatch.setattr(journal_module, "WRITTEN_S", write)

    desks: list[Desk] = []
    monkeypatch.setattr(journal_module, "ALIVE_S", 60.0)  # only what is meant is written

    async def work(desk: Desk) -> None:
        desks.append(desk)
        conversation, recorder = desk.begin()
        await recorder.written()
        assert await desk.find(conversation)
        limits(0.5, 0.25)
        released = desk.hang()
        desk.session.history.add("user", "It hangs.")
        recorder.changed()
        await recorder.written()
        assert "the store of conversations takes longer than 0.25 s" in caplog.text
        recorder.changed()
        waiting = recorder.written()
        with pytest.raises(StopIteration):  # it is done before it waits for anything
            waiting.send(None)
        async with asyncio.timeout(30.0):
            while (desk.value("journal_writes_total", outcome="failed") or 0) < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert await desk.journal.find("conv_other", KEY, KEYS) is None
        limits(20.0, 20.0)
        released.set()
        await desk.until(lambda: has_said(desk, conversation, "It hangs."))
        assert desk.value("journal_writes_total", outcome="written") == 2
        assert desk.value("journal_write_seconds_count") == 2
        assert desk.value("journal_conversations") == 1

    at(tmp_path, work)
    said = [record.getMessage() for record in caplog.records]
    assert said.count("conversations are not kept: the file has not answered for 0.5 s") == 1
    assert said.count("conversations are kept again") == 1


async def has_said(desk: Desk, conversation: str, words: str) -> bool:
    found = await desk.find(conversation)
    return found is not None and words in json.dumps(found.state)


def test_server_ends_while_its_file_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sqlite_module, "FILE_ANSWER_S", 0.1)
    released: list[Event] = []

    async def work(desk: Desk) -> None:
        desk.begin()
        released.append(desk.hang())
        await asyncio.sleep(0)

    at(tmp_path, work)
    released[0].set()
    assert "the store of conversations was not closed: the file has not answered for 0.1 s" in caplog.text


def test_write_that_the_end_of_the_server_cuts_off_is_written_again(tmp_path: Path) -> None:
    conversation, released = "", Event()

    async def work(desk: Desk) -> None:
        nonlocal conversation, released
        conversation, recorder = desk.begin()
        await recorder.written()
        released = desk.hang()
        desk.session.history.add("user", "The last words.")
        recorder.changed()
        async with asyncio.timeout(30.0):
            while recorder.has_changed:  # noqa: ASYNC110 - until the write has taken it
                await asyncio.sleep(0.01)
        asyncio.get_running_loop().call_later(0.2, released.set)

    at(tmp_path, work)

    async def find() -> Found | None:
        store = SqliteConversations(tmp_path / "kept.db", JournalLimits(), lambda: 0.0)
        try:
            return await Journal(store, Meters()).find(conversation, KEY, KEYS)
        finally:
            await store.aclose()

    found = asyncio.run(find())
    assert found is not None and "The last words." in json.dumps(found.state)


def test_two_calls_of_one_process_do_not_take_over_the_same_conversation(tmp_path: Path) -> None:
    """The second one has read the store between the claim of the first and its begin."""

    async def work(desk: Desk) -> None:
        conversation, recorder = desk.begin()
        await recorder.written()
        store = SqliteConversations(desk.path, JournalLimits(), lambda: 0.0)
        other = Journal(store, Meters())
        first = await other.find(conversation, KEY, KEYS)
        late = await other.find(conversation, KEY, KEYS)
        assert first and late
        claims = await asyncio.gather(other.claim(first), other.claim(late))
        assert claims[0] is not None and claims[1] is None
        second = await other.find(conversation, KEY, KEYS)
        assert second is not None and second.generation == claims[0].generation
        wire = Realtime(Options(), conversation=conversation)
        other.record(wire, first.about, claims[0].generation)
        assert await other.claim(second) is None
        await store.aclose()

    at(tmp_path, work)


def test_the_store_is_not_read_for_a_key_that_can_resume_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def work(desk: Desk) -> None:
        desk.rename("conversations", "lost")
        for key in ("", "rj_of_another_server", "ek_too_short"):
            assert await desk.journal.find("conv_any", key, KEYS) is None
        assert not caplog.records
        for number, key in enumerate((KEY, other_secret), 1):
            assert await desk.journal.find("conv_any", key, KEYS) is None
            assert len(caplog.records) == number, "it was read"
        desk.rename("lost", "conversations")

    other_secret, _ = Keys([], lambda: 0.0).mint(1.0, {})
    at(tmp_path, work)


def test_failed_writes_are_tried_again_soon_and_then_less_often() -> None:
    waits = [retry_after(failures) for failures in range(1, 2000)]
    assert waits[:3] == [FIRST_REWRITE_S, 2 * FIRST_REWRITE_S, 4 * FIRST_REWRITE_S]
    assert waits == sorted(waits) and waits[-1] == LONGEST_REWRITE_S
