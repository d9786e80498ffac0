"""The pace of a client's messages: too many, or none for too long, end its call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from rejoinder.pipeline import Overloaded
from rejoinder.pipeline.errors import HungUp

LOOK_SECONDS = 1.0
"""Interval between two looks, in seconds. A client may exceed its rate for that long."""
BURST_SECONDS = 10.0
"""Time over which the rate of messages is averaged, in seconds: a client may send that many at once."""


class Pace:
    """The pace of one call's messages. Times are arguments, in seconds.

    per_second: most messages, 0 for no limit. silent: longest time without a message, 0.0 for any.
    """

    def __init__(self, per_second: int, silent: float, now: float) -> None:
        self._per_second = per_second
        self._silent = silent
        self._left = per_second * BURST_SECONDS
        self._looked = self._last = now
        self._came = 0

    def look(self, now: float, came: int) -> None:
        """Take how many messages have come by now, in all.

        Raises Overloaded where these are too many, and HungUp where none has come for too long.
        """
        new, self._came = came - self._came, came
        earned = (now - self._looked) * self._per_second
        self._left = min(self._per_second * BURST_SECONDS, self._left + earned) - new
        self._looked, self._last = now, now if new else self._last
        if self._per_second and self._left < 0.0:
            raise Overloaded(f"the client sends more than {self._per_second} messages a second")
        if self._silent and now - self._last >= self._silent:
            raise HungUp(f"the client has sent nothing for {self._silent:g} s")


async def keep_pace(per_second: int, silent: float, came: Callable[[], int]) -> None:
    """Look at the pace of a call once a second, until cancelled. Raises as ``Pace.look`` does.

    came: returns how many messages have come so far. The others are as in ``Pace``.
    """
    if not (per_second or silent):
        return
    loop = asyncio.get_running_loop()
    pace = Pace(per_second, silent, loop.time())
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        pace.look(loop.time(), came())
