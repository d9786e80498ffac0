"""An event loop whose clock jumps to the next timer: a run takes milliseconds and is deterministic."""

from __future__ import annotations

import asyncio
import gc
import selectors
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from contextvars import Context
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

STANDSTILL_SECONDS = 60.0
"""Longest real wait while the virtual clock stands still, in seconds."""
LONGEST_SILENCE_SECONDS = 600.0
"""Longest wait for real events in real time, in seconds, if no timer is pending: models load slowly."""
WRONG_THREAD = "another thread may call only call_soon_threadsafe on this loop"
"""The error of a call from a thread other than the loop's."""


class Deadlock(Exception):
    """Every task waits and no timer is pending, so the run cannot continue."""


class Leak(AssertionError):
    """The main coroutine returned but left tasks or unhandled errors behind."""


class JumpingSelector(selectors.SelectSelector):
    """Advances virtual time instead of waiting.

    now: virtual time in seconds. steps: number of iterations of the loop, each of which could cancel a task.
    at_step, act: call ``act`` in that step. held: number of waits for real events; virtual time stops while
    it is above 0. real_time: number of blocks during which virtual time passes as real time does.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.steps = 0
        self.held = 0
        self.real_time = 0
        self.at_step = -1
        self.act: Callable[[], object] = lambda: None

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return what is ready. If nothing is, advance the time to the next timer."""
        self.steps += 1
        if self.steps == self.at_step:
            self.act()
            return []  # the loop runs ``act``'s effects before it selects again
        if self.real_time and timeout != 0:
            began = time.perf_counter()
            ready = super().select(LONGEST_SILENCE_SECONDS if timeout is None else timeout)
            if timeout is None and not ready:
                raise Deadlock(f"every task waits, and nothing happened for {LONGEST_SILENCE_SECONDS:g} s")
            self.now += time.perf_counter() - began if ready or timeout is None else timeout
            return ready
        if self.held and timeout != 0:
            ready = super().select(STANDSTILL_SECONDS)
            if not ready:
                raise Deadlock(
                    f"the clock stood still for a model that did nothing for {STANDSTILL_SECONDS:g} s"
                )
            return ready
        # With no socket but the loop's own wake-up, there is nothing to poll while time passes.
        alone = timeout is not None and len(self.get_map()) == 1
        ready = [] if alone else super().select(0)
        if timeout is None and not ready:
            raise Deadlock("every task waits and no timer is pending")
        self.now += 0.0 if ready else max(0.0, timeout or 0.0)
        return ready


class VirtualClockLoop(asyncio.SelectorEventLoop):
    """An event loop in virtual time, which starts at 0.

    Other threads may use it only by ``call_soon_threadsafe``. asyncio checks that in its debug mode, which is
    five times as slow.
    """

    def __init__(self) -> None:
        self.jumping = JumpingSelector()
        self._own_thread = threading.get_ident()
        super().__init__(self.jumping)

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self.jumping.now

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Run a callback in the next step. Raises RuntimeError in a thread other than the loop's."""
        if threading.get_ident() != self._own_thread:
            raise RuntimeError(WRONG_THREAD)
        return super().call_soon(callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Run a callback at a virtual time. Raises RuntimeError in a thread other than the loop's."""
        if threading.get_ident() != self._own_thread:
            raise RuntimeError(WRONG_THREAD)
        return super().call_at(when, callback, *args, context=context)

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Run a function in a thread. While one of ``asyncio.to_thread`` runs, virtual time stands still."""
        result = super().run_in_executor(executor, func, *args)
        if executor is None:
            self.jumping.held += 1
            result.add_done_callback(self._release)
        return result

    def _release(self, done: asyncio.Future[Any]) -> None:
        self.jumping.held -= 1


@contextmanager
def standing_still() -> Iterator[None]:
    """Stop virtual time while the block waits for real events. Does nothing on an ordinary loop."""
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualClockLoop):
        yield
        return
    loop.jumping.held += 1
    try:
        yield
    finally:
        loop.jumping.held -= 1


@contextmanager
def in_real_time() -> Iterator[None]:
    """Let virtual time pass as real time does during the block. Does nothing on an ordinary loop.

    For code that waits for sockets and threads, and sleeps, too. Such a call is not the same each time.
    """
    loop = asyncio.get_running_loop()
    if not isinstance(loop, VirtualClockLoop):
        yield
        return
    loop.jumping.real_time += 1
    try:
        yield
    finally:
        loop.jumping.real_time -= 1


def run(main: Coroutine[Any, Any, T], debug: bool = False) -> T:
    """Run a coroutine in virtual time and return its result. Raises Deadlock, or Leak.

    debug: asyncio's debug mode, which names the place where a coroutine that is never awaited was made.
    """
    unseen: list[dict[str, Any]] = []
    with asyncio.Runner(debug=debug, loop_factory=VirtualClockLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, VirtualClockLoop)
        loop.set_exception_handler(lambda _, context: unseen.append(context))
        result = runner.run(main)
        if leaked := asyncio.all_tasks(loop):
            raise Leak(f"tasks left behind: {leaked}")
        gc.collect(1)
        loop.jumping.held += 1  # the loop's executor threads end in real time
    if unseen:
        raise Leak(f"unhandled errors: {unseen}")
    return result


def at_step(step: int, act: Callable[[], object]) -> None:
    """Call ``act`` in a later step of the running loop; the next step is 1."""
    jumping = _running().jumping
    jumping.at_step, jumping.act = jumping.steps + step, act


def steps_so_far() -> int:
    """Return the number of iterations of the running loop."""
    return _running().jumping.steps


async def cancelled_at(step: int, main: Coroutine[Any, Any, object]) -> bool:
    """Run a coroutine and cancel it in a step of the loop. Return whether the cancel took effect.

    Cancelling this call leaves the coroutine running until that step.
    """
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
