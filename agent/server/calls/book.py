"""The calls of a server as operators see them: those that run, the last ones, and those in the database."""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from rejoinder.agent.app.call import CallInfo
from rejoinder.agent.config import ConfigError, Settings
from rejoinder.agent.metrics.llm_identities import llm_identities
from rejoinder.agent.metrics.measures import Measurement
from rejoinder.agent.metrics.meters import Meters
from rejoinder.agent.server.calls.filters import CallFilter
from rejoinder.agent.server.calls.keeper import CallKeeper
from rejoinder.agent.server.calls.kept import KeptCall
from rejoinder.agent.server.calls.privacy import keeper_of
from rejoinder.agent.server.calls.reading import Readers
from rejoinder.agent.server.calls.record import CallRecord
from rejoinder.agent.server.calls.recorder import CallRecorder
from rejoinder.agent.server.calls.store import CallStore, CannotOpen, StoreLimits
from rejoinder.agent.wires.observer import CallObserver
from rejoinder.pipeline.engines import queue_waits

RECENT_CALLS = 100
"""Most calls that are over and stay in memory."""
RECENT_CHARACTERS = 16 * 2**20
"""Most characters of these calls."""


class CallBook:
    """The calls of one server. Raises ConfigError where the database cannot be opened.

    meters: count what is kept, None for no count. load_level: returns the present one. live: recorders of
    calls that run, or wait to be kept, by id. ended: number of calls that have ended, which grows.
    """

    def __init__(
        self, settings: Settings, meters: Meters | None, load_level: Callable[[], int] = lambda: 0
    ) -> None:
        self.load_level = load_level
        self.live: dict[str, CallRecorder] = {}
        self.ended = 0
        self._llm = llm_identities(settings).label
        seen = settings.calls_page and Readers(settings).possible
        self._on = seen or bool(settings.calls_db)
        self._recent: OrderedDict[str, KeptCall] = OrderedDict()
        self._characters = 0
        self._store = open_store(settings)
        leave_out = keeper_of(settings.calls_words)

        def prepare(record: CallRecord) -> KeptCall:
            leave_out(record)
            return KeptCall.of(record)

        def count(outcome: str) -> None:
            if meters:
                meters.record([Measurement("kept_calls", labels=(outcome,))])

        self._keeper = CallKeeper(self._store, prepare, count, self._remember, self._forget)

    def observe(self, info: CallInfo) -> list[CallObserver]:
        """Return what records a new call. The current task has to be the one that runs it."""
        if not self._on:
            return []
        waits: dict[str, float] = {}
        queue_waits.current.set(waits)  # all tasks of the call begin after this one
        record = CallRecord.of(info, time.time())
        return [CallRecorder(record, time.monotonic, waits, self._begin, self._end, self._llm)]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep calls for the length of the block. Cancelling ends that."""
        async with self._keeper.running():
            yield

    async def summaries(self, wanted: CallFilter) -> list[dict[str, Any]]:
        """Return the summaries of calls that are over, the last one first. Raises sqlite3.Error.

        Cancelling ends the wait for the database.
        """
        found = [call.summary for call in self._recent.values() if wanted.fits(call.summary, call.words)]
        if self._store:
            here = {one["id"] for one in found}
            found += [one for one in await self._store.summaries(wanted) if one["id"] not in here]
        return sorted(found, key=lambda one: -float(one["began"]))[: wanted.limit]

    async def bodies(self, wanted: CallFilter) -> list[str]:
        """Return whole calls that are over, as JSON, the last one first. Raises sqlite3.Error.

        Cancelling ends the wait for the database.
        """
        found = {
            call.summary["id"]: (float(call.summary["began"]), call.body)
            for call in self._recent.values()
            if wanted.fits(call.summary, call.words)
        }
        for id_, began, body in await self._store.bodies(wanted) if self._store else []:
            found.setdefault(id_, (began, body))  # not parsed: 200 long calls would hold up the event loop
        return [body for _, body in sorted(found.values(), key=lambda one: -one[0])][: wanted.limit]

    async def get(self, id_: str) -> str | None:
        """Return a whole call as JSON, None for an unknown one. Raises sqlite3.Error.

        id_: the record's, or the call's own, as in the log; several calls of a carrier may share that one.

        Cancelling ends the wait for the database.
        """
        if running := self.running_call(id_):
            return json.dumps({**running.record.described(), **running.live()}, ensure_ascii=False)
        for call in reversed(self._recent.values()):
            if id_ in (call.summary["id"], call.summary["call"]):
                return call.body
        return await self._store.get(id_) if self._store else None

    def running_call(self, id_: str) -> CallRecorder | None:
        """Return the recorder of a running call, by the record's id or the call's own; None for none."""
        found = [one for one in self.live.values() if id_ in (one.record.id, one.record.call)]
        return found[-1] if found else None

    def _begin(self, recorder: CallRecorder) -> None:
        self.live[recorder.record.id] = recorder  # not before: a call that never runs has no end

    def _end(self, recorder: CallRecorder) -> None:
        if not self._keeper.give(recorder.record):
            self._forget(recorder.record)

    def _remember(self, record: CallRecord, call: KeptCall) -> None:
        """Keep a call that is over among the last ones."""
        self._recent[record.id] = call
        self._characters += call.size
        while len(self._recent) > RECENT_CALLS or self._characters > RECENT_CHARACTERS:
            _, oldest = self._recent.popitem(last=False)
            self._characters -= oldest.size

    def _forget(self, record: CallRecord) -> None:
        self.live.pop(record.id, None)
        self.ended += 1


def open_store(settings: Settings) -> CallStore | None:
    """Return the database that the settings name, None for none. Raises ConfigError."""
    if not settings.calls_db:
        return None
    limits = StoreLimits(settings.calls_days, settings.calls_mb * 2**20)
    try:
        return CallStore(Path(settings.calls_db).expanduser(), limits, time.time)
    except CannotOpen as error:
        raise ConfigError(f"calls_db: {error}") from error
