"""Reads and changes the memories of a server's agents, in a thread."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol

import anyio

from rejoinder.agent.app.memory.caller_facts import CallerFacts
from rejoinder.agent.app.memory.memory import Memory, identity

READ_S = 1.0
"""Longest wait for the facts about a caller before the call, in seconds; then the call does without."""


class RunMemory(Protocol):
    """Calls a method of a memory in a thread, and returns its result; its exceptions pass."""

    def __call__(
        self, function: Callable[..., Any], *arguments: Any, may_abandon: bool = False
    ) -> Awaitable[Any]:
        """Cancelling waits for the thread, unless ``may_abandon`` is set."""
        ...


class MemoryKeeper:
    """Gives each call what is known of its caller, and carries out its changes in the background, in order.

    A memory that fails costs no call. run: calls its methods, one at a time. spawn: runs a coroutine in a
    task that may outlive its call.
    """

    def __init__(self, run: RunMemory, spawn: Callable[[Coroutine[Any, Any, None], str], object]) -> None:
        self._run = run
        self._spawn = spawn

    async def facts(
        self, memory: Memory | None, number: str, failed: Callable[[str, Exception], None]
    ) -> CallerFacts:
        """Return what a memory knows of a caller; nothing if it fails or takes longer than ``READ_S``.

        number: the caller's number or name. failed: takes the name of a method and its exception, also of
        later changes.
        Cancelling leaves the memory's thread running.
        """
        caller, known = identity(number), None
        if memory is None:
            return CallerFacts()
        try:
            if caller:
                with anyio.fail_after(READ_S):
                    known = await self._run(memory.facts, caller, may_abandon=True)
        except TimeoutError:
            failed("memory.facts", TimeoutError(f"it did not answer within {READ_S:g} s"))
        except Exception as error:
            failed("memory.facts", error)
        loop = asyncio.get_running_loop()

        def write(what: str, change: Callable[[], None]) -> None:
            loop.call_soon_threadsafe(self._write, f"memory.{what}", change, failed)

        return CallerFacts(memory, caller, write, known)

    def _write(self, what: str, change: Callable[[], None], failed: Callable[[str, Exception], None]) -> None:
        self._spawn(self._written(what, change, failed), "memory")

    async def _written(
        self, what: str, change: Callable[[], None], failed: Callable[[str, Exception], None]
    ) -> None:
        try:
            await self._run(change)
        except Exception as error:
            failed(what, error)
