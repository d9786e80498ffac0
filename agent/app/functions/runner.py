"""Runs the integrator's functions: coroutine functions on the event loop, all others in threads."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from rejoinder.agent.app.functions.blocking import measured
from rejoinder.agent.app.functions.places import described
from rejoinder.agent.app.functions.threads import FunctionThreads

log = logging.getLogger(__name__)

BLOCKING_S = 0.1
"""A step of a coroutine that holds up the event loop for longer than this, in seconds, is logged."""


def is_coroutine_function(function: Callable[..., Any]) -> bool:
    """Return whether a function runs on the event loop. An object counts by its ``__call__``."""
    call = getattr(type(function), "__call__", None)  # noqa: B004 - it is inspected, not called
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


class FunctionRunner:
    """Runs functions of the integrator. most_threads: as in ``FunctionThreads``.

    The log names, once for each function, a coroutine that blocks the event loop and a thread that goes on
    after a cancel.
    """

    def __init__(self, most_threads: int) -> None:
        self._most = most_threads
        self._threads = FunctionThreads(most_threads)
        self._blocking: set[str] = set()
        self._unstoppable: set[str] = set()

    async def run(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call a function and return its result; its exceptions pass.

        Cancelling cancels a coroutine. A function in a thread goes on, and its result is dropped.
        """
        if is_coroutine_function(function):
            result = function(*arguments, **named)
        else:
            if self._threads.full and (abandoned := self._threads.abandoned):
                log.warning(
                    "%s waits: all %d threads are in use, %d of them by functions that were cancelled",
                    described(function), self._most, abandoned,
                )  # fmt: skip
            work = partial(function, *arguments, **named)
            result = await self._threads.run(work, partial(self._went_on, function))
        if inspect.iscoroutine(result):
            return await measured(result, partial(self._took, function))
        return await result if inspect.isawaitable(result) else result

    def _took(self, function: Callable[..., Any], seconds: float) -> None:
        if seconds > BLOCKING_S and (name := described(function)) not in self._blocking:
            self._blocking.add(name)
            log.warning(
                "%s held up all calls for %.0f ms, because it blocks the event loop: let it await what takes "
                "time, or make it a plain function (def), which runs in a thread",
                name, seconds * 1000,
            )  # fmt: skip

    def _went_on(self, function: Callable[..., Any]) -> None:
        if (name := described(function)) not in self._unstoppable:
            self._unstoppable.add(name)
            log.warning(
                "%s was cancelled, but goes on in its thread, which nothing can stop: only a coroutine "
                "function (async def) can be cancelled",
                name,
            )
