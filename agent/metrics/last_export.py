"""The last export of a server that ends. A collector that does not answer must not hold it up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

LAST_EXPORT_SECONDS = 1.5
"""Longest wait for the last export of traces, and of metrics, in seconds. The exporters try for 10 s."""


async def finish(export: Callable[[], object], stop: Callable[[], object]) -> None:
    """Run an export in a thread, and stop it if it takes too long. Cancelling leaves it to its thread.

    stop: ends the export from another thread, without waiting for it.
    """
    exporting = asyncio.create_task(asyncio.to_thread(export))
    if not (await asyncio.wait([exporting], timeout=LAST_EXPORT_SECONDS))[0]:
        stop()
    await asyncio.wait([exporting])
