"""Waits between two reads of a silent call."""

from __future__ import annotations

import asyncio

from rejoinder.agent.wires.idle_reads import may_skip_a_read, until_next_read
from rejoinder.pipeline import Models, Options


async def wait_for_next_read(models: Models, options: Options, began: float, last_active: float) -> None:
    """Wait until the next read time of a silent call, or a later one while other calls wait for a model.

    No read is skipped where silence or the call's length has a limit: speech must be read before the limit
    expires. began: when the call began to be read. last_active: when something last happened in it.
    Cancelling stops the wait.
    """
    loop = asyncio.get_running_loop()
    since, limited = loop.time(), options.idle_s or options.max_call_s
    while True:
        await asyncio.sleep(until_next_read(loop.time(), began))
        others = models.load_shedder.pressing and not limited
        if not (others and may_skip_a_read(loop.time(), last_active, since)):
            return
