"""An event loop whose clock jumps to the next timer: minutes pass in milliseconds, always in the same way."""

from __future__ import annotations

import asyncio
import gc
import selectors
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

HELD_SECONDS = 60.0
"""Real seconds that the clock stands still at most while somebody waits for the real world."""


class Deadlock(Exception):
    """Every task waits and no timer is pending, so nothing would ever happen again."""


class Leak(AssertionError):
    """A coroutine came to its end, and something that it started did not."""


class JumpingSelector(selectors.SelectSelector):
    """Lets time pass instead of waiting.

    now: seconds. steps: how often the loop has looked for work, which is how often a task could be cancelled.
    at_step, act: call ``act`` in that step. held: how many wait for the real world, while no time passes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.steps = 0
        self.held = 0
        self.at_step = -1
        self.act: Callable[[], object] = lambda: None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready; where nothing is, jump to the next timer."""
        self.steps += 1
        if self.steps == self.at_step:
            self.act()
            return []  # the loop comes back at once, and knows then what there is to do
        if self.held and timeout != 0:
            ready = super().select(HELD_SECONDS)
            if not ready:
                raise Deadlock(f"the clock stands still for a model, and for {HELD_SECONDS:g} s nothing came")
            return ready
        # Without anybody's sockets there is only the loop's own wake-up: no need to look while time passes.
        alone = timeout is not None and len(self.get_map()) == 1
        ready = [] if alone else super().select(0)
        if timeout is None and not ready:
            raise Deadlock("every task waits and no timer is pending")
        self.now += 0.0 if ready else max(0.0, timeout or 0.0)
        return ready


class VirtualClockLoop(asyncio.SelectorEventLoop):
    """A loop in virtual time, from 0."""

    def __init__(self) -> None:
        self.jumping = JumpingSelector()
        super().__init__(self.jumping)

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self.jumping.now


@contextmanager
def standing_still() -> Iterator[None]:
    """Let no virtual time pass in the block, which waits for the real world; elsewhere it does nothing."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualClockLoop):
        yield
        return
    loop.jumping.held += 1
    try:
        yield
    finally:
        loop.jumping.held -= 1


def run(main: Coroutine[Any, Any, T], debug: bool = True) -> T:
    """Run a coroutine in virtual time. Raises Deadlock, or Leak for a task left behind, an unseen error."""
    unseen: list[dict[str, Any]] = []
    with asyncio.Runner(debug=debug, loop_factory=VirtualClockLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, VirtualClockLoop)
        loop.set_exception_handler(lambda _, context: unseen.append(context))
        result = runner.run(main)
        if leaked := asyncio.all_tasks(loop):
            raise Leak(f"tasks left behind: {leaked}")
        gc.collect(1)
        loop.jumping.held += 1  # threads of the loop's own end in real time
    if unseen:
        raise Leak(f"errors that nobody saw: {unseen}")
    return result


def at_step(step: int, act: Callable[[], object]) -> None:
    """Act in a step of the running loop, counted from now and from 1."""
    jumping = _running().jumping
    jumping.at_step, jumping.act = jumping.steps + step, act


def steps_so_far() -> int:
    """Return how often the running loop has looked for work."""
    return _running().jumping.steps


async def cancelled_at(step: int, main: Coroutine[Any, Any, object]) -> bool:
    """Run a coroutine and cancel it in a step of the loop; return whether it ran until then."""
    task = asyncio.ensure_future(main)
    at_step(step, task.cancel)
    await asyncio.wait([task])
    at_step(-1, task.cancel)
    if not task.cancelled():
        task.result()
    return task.cancelled()


def _running() -> VirtualClockLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualClockLoop), "not in virtual time"
    return loop
