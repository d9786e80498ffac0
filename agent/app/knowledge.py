"""What an agent's context functions return for the words of one call's caller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from rejoinder.agent.app.call import Call
from rejoinder.agent.app.functions.places import described
from rejoinder.agent.app.functions.runner import is_coroutine_function

if TYPE_CHECKING:
    from rejoinder.agent.app.host import AgentHost


class Knowledge:
    """Runs the context functions of one call. It is a ``ContextFunction`` of the pipeline.

    host: runs the functions; one in a thread may go on when the call is over.
    """

    def __init__(self, call: Call, functions: Iterable[Callable[..., Any]], host: AgentHost) -> None:
        self._call = call
        self._functions = list(functions)
        self._host = host
        self._thread = asyncio.Lock()

    async def __call__(self, words: str) -> str:
        """Return what the functions know for these words, in the order of the functions.

        They run side by side, but synchronous ones one after the other. One that fails is logged and left
        out. Cancelling cancels coroutines; a function in a thread goes on, and the next one waits for it, so
        that a call has one thread.
        """
        found = await asyncio.gather(*(self._run(function, words) for function in self._functions))
        return "\n\n".join(filter(None, found))

    async def _run(self, function: Callable[..., Any], words: str) -> str:
        if is_coroutine_function(function):
            return await self._ask(function, words)
        await self._thread.acquire()
        return await asyncio.shield(self._host.spawn(self._ask_in_thread(function, words), "context"))

    async def _ask_in_thread(self, function: Callable[..., Any], words: str) -> str:
        try:
            return await self._ask(function, words)
        finally:
            self._thread.release()

    async def _ask(self, function: Callable[..., Any], words: str) -> str:
        try:
            return text_of(await self._host.run_hook(function, self._call, words))
        except Exception as error:
            self._host.failed(self._call.info, f"the context function {described(function)}", error)
            return ""


def text_of(found: object) -> str:
    """Return what a context function has returned as one text: passages stand below each other.

    Raises TypeError for anything but text, a sequence of texts, and None.
    """
    passages: list[object] | None = None
    if isinstance(found, str) or found is None:
        passages = [found or ""]
    elif isinstance(found, Iterable):
        passages = list(found)
    if passages is None or not all(isinstance(one, str) for one in passages):
        raise TypeError(f"it returned {type(found).__name__}: it must return text, a list of texts, or None")
    return "\n\n".join(stripped for one in passages if (stripped := str(one).strip()))
