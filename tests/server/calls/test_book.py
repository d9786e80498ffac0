"""The book of calls, without a server."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest
from support.serving import SCRIPTED

from rejoinder.agent.app.call import CallInfo
from rejoinder.agent.config import load
from rejoinder.agent.metrics.meters import Meters
from rejoinder.agent.server.calls.book import CallBook, open_store
from rejoinder.agent.server.calls.filters import CallFilter
from rejoinder.agent.server.calls.kept import KeptCall
from rejoinder.agent.server.calls.record import CallRecord


def test_export_does_not_parse_the_calls_of_the_database(tmp_path: Path) -> None:
    """Two hundred long calls would hold up the event loop, and with it all calls that run."""
    settings, _ = load({**SCRIPTED, "calls_db": str(tmp_path / "calls.db")})
    summary = CallRecord.of(CallInfo("sess_1", "pcm"), time.time()).summary()

    async def export() -> list[str]:
        store = open_store(settings)
        assert store
        later = {**summary, "id": "later", "began": summary["began"] + 1}
        await store.put(KeptCall(summary, "", "not JSON"))
        await store.put(KeptCall(later, "", "nor this"))
        await store.aclose()
        book = CallBook(settings, Meters())
        async with book.running():
            return await book.bodies(CallFilter())

    assert asyncio.run(export()) == ["nor this", "not JSON"]


@pytest.mark.parametrize(
    ("given", "records"),
    [
        ({}, True),
        ({"host": "0.0.0.0"}, False),
        ({"host": "0.0.0.0", "calls_key": "0" * 64}, True),
        ({"host": "0.0.0.0", "calls_db": "calls.db"}, True),
        ({"calls_page": False}, False),
    ],
)
def test_calls_are_not_recorded_where_nobody_can_look_at_them(
    given: dict[str, object], records: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    settings, _ = load({**SCRIPTED, **given})

    async def observed() -> bool:
        book = CallBook(settings, None)
        async with book.running():
            return bool(book.observe(CallInfo("sess_1", "pcm")))

    assert asyncio.run(observed()) is records
