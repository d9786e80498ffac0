"""Writes calls that are over to the database, off the event loop. A database that fails hurts no call."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

from rejoinder.agent.server.calls.kept import KeptCall
from rejoinder.agent.server.calls.record import CallRecord
from rejoinder.agent.server.calls.store import CallStore
from rejoinder.pipeline import Channel

log = logging.getLogger(__name__)

MAX_WAITING_CALLS = 256
"""Most calls that wait to be prepared, and most that wait for the database. Further ones are not kept."""
FIRST_RETRY_S = 1.0
"""Wait before a failed write is tried again, in seconds; it doubles each time."""
LONGEST_RETRY_S = 30.0
"""Longest wait between two tries, in seconds."""
TRIM_S = 3600.0
"""Interval in which calls that are too old are deleted, in seconds, where no call ends."""
CLOSE_S = 2.0
"""Longest wait for calls that are not yet kept when the server ends, in seconds."""


class CallKeeper:
    """Keeps the calls that are over, one after the other.

    store: the database, None for none. prepare: makes a record ready to be kept; it runs in a thread. count:
    called with "kept", "dropped" or "failed" for each try. kept: called with each call that is ready, whether
    or not a database has it. forget: called with each record that is prepared, or cannot be.
    """

    def __init__(
        self,
        store: CallStore | None,
        prepare: Callable[[CallRecord], KeptCall],
        count: Callable[[str], None],
        kept: Callable[[CallRecord, KeptCall], None],
        forget: Callable[[CallRecord], None],
    ) -> None:
        self._store = store
        self._prepare = prepare
        self._count = count
        self._kept = kept
        self._forget = forget
        self._waiting: Channel[CallRecord] = Channel(MAX_WAITING_CALLS, "calls")
        self._ready: Channel[KeptCall] = Channel(MAX_WAITING_CALLS, "kept-calls")
        self._failing = False
        # One thread of its own: the default executor may begin another one while the first is idle.
        self._thread = ThreadPoolExecutor(1, "prepare-calls")

    def give(self, record: CallRecord) -> bool:
        """Take a call that is over; return False if too many wait, so that it is not kept."""
        if not self._waiting.closed and self._waiting.send_nowait(record):
            return True
        self._drop()
        return False

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep calls for the length of the block, and at its end those that wait, for a moment.

        Cancelling does the same.
        """
        keeping = [asyncio.create_task(self._prepare_all(), name="prepare-calls")]
        tasks = keeping
        if self._store:
            keeping.append(asyncio.create_task(self._put_all(self._store), name="keep-calls"))
            tasks = [*keeping, asyncio.create_task(self._trim(self._store), name="trim-calls")]
        try:
            yield
        finally:
            self._waiting.close()
            await asyncio.wait(keeping, timeout=CLOSE_S)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            left = [record.call for record in self._waiting.receive_nowait(MAX_WAITING_CALLS)]
            left += [call.summary["call"] for call in self._ready.receive_nowait(MAX_WAITING_CALLS)]
            for name in left:
                self._count("dropped")
                log.warning("call %s is not kept: the server ended first", name)
            self._thread.shutdown(wait=False)
            if self._store:
                await self._store.aclose()

    async def _prepare_all(self) -> None:
        """Prepare each call at once, whatever the database does: until then all its words are shown."""
        async for record in self._waiting:
            try:
                try:
                    call = await asyncio.get_running_loop().run_in_executor(
                        self._thread, self._prepare, record
                    )
                    self._kept(record, call)
                finally:  # it may have words that are not to be shown
                    self._forget(record)
                if self._store and not self._ready.send_nowait(call):
                    self._drop()
            except Exception:  # of one call: the next ones are kept
                self._count("dropped")
                log.exception("call %s is not kept", record.call)
        self._ready.close()

    async def _put_all(self, store: CallStore) -> None:
        async for call in self._ready:
            try:
                await self._put(store, call)
            except Exception:  # of one call: the next ones are kept
                self._count("dropped")
                log.exception("call %s is not kept", call.summary["call"])

    def _drop(self) -> None:
        self._count("dropped")
        log.warning("a call is not kept: %d calls wait for the database already", MAX_WAITING_CALLS)

    async def _put(self, store: CallStore, call: KeptCall) -> None:
        """Store a call. A database that is locked, full or away is tried until the server ends.

        Cancelling gives up.
        """
        wait = FIRST_RETRY_S
        try:
            while not await self._try(store, call):
                await asyncio.sleep(wait)
                wait = min(2.0 * wait, LONGEST_RETRY_S)
        except asyncio.CancelledError:
            self._count("dropped")
            log.warning("call %s may not be kept: the server ended first", call.summary["call"])
            raise

    async def _try(self, store: CallStore, call: KeptCall) -> bool:
        """Return whether the database has taken a call. Cancelling stops the wait only."""
        try:
            await store.put(call)
        except sqlite3.Error as error:
            self._count("failed")
            if not self._failing:  # once: the next tries fail as well
                log.warning("calls are not kept now, and tried again: %s", error)
            self._failing = True
            return False
        self._count("kept")
        if self._failing:
            log.info("calls are kept again")
        self._failing = False
        return True

    async def _trim(self, store: CallStore) -> None:
        while True:
            try:
                await store.trim()
            except sqlite3.Error as error:
                log.warning("old calls are not deleted now: %s", error)
            await asyncio.sleep(TRIM_S)
