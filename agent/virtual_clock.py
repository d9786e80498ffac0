"""An event loop whose clock jumps to the next timer: minutes pass in milliseconds, always in the same way."""

from __future__ import annotations

import asyncio
import gc
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Deadlock(Exception):
    """Every task waits and no timer is pending, so nothing would ever happen again."""


class JumpingSelector(selectors.SelectSelector):
    """Lets time pass instead of waiting."""

    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if timeout is None and not ready:
            raise Deadlock("every task waits and no timer is pending")
        self.now += 0.0 if ready else max(0.0, timeout or 0.0)
        return ready


class VirtualClockLoop(asyncio.SelectorEventLoop):
    """A loop in virtual time, from 0."""

    def __init__(self) -> None:
        self._jumping = JumpingSelector()
        super().__init__(self._jumping)

    def time(self) -> float:
        return self._jumping.now


def run(main: Coroutine[Any, Any, T], debug: bool = True) -> T:
    """Run a coroutine in virtual time; fail on a deadlock, a task left behind or an error nobody saw."""
    unseen: list[dict[str, Any]] = []
    with asyncio.Runner(debug=debug, loop_factory=VirtualClockLoop) as runner:
        loop = runner.get_loop()
        loop.set_exception_handler(lambda _, context: unseen.append(context))
        result = runner.run(main)
        leaked = asyncio.all_tasks(loop)
        assert not leaked, f"tasks left behind: {leaked}"
        gc.collect(1)
    assert not unseen, f"errors that nobody saw: {unseen}"
    return result
