"""What an agent's context functions return for the words of one call's caller."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from rejoinder.agent.app.call import Call
from rejoinder.agent.app.functions.places import described
from rejoinder.agent.app.functions.runner import is_coroutine_function

if TYPE_CHECKING:
    from rejoinder.agent.app.host import AgentHost


class Knowledge:
    """Runs the context functions of one call. It is a ``ContextFunction`` of the pipeline.

    host: runs the functions; a synchronous one may go on in its thread when the call is over.
    """

    def __init__(
        self, call: Call[Any, Any], functions: Sequence[Callable[..., Any]], host: AgentHost
    ) -> None:
        self._call = call
        self._functions = functions
        self._host = host
        self._thread = asyncio.Lock()

    async def __call__(self, words: str) -> str:
        """Return what the functions know about these words, in their order.

        The functions run side by side, but synchronous ones one after the other. One that fails is logged and
        left out. Cancelling cancels coroutines; a synchronous function goes on in its thread, its result is
        dropped, and the next one waits for it, so there is at most one thread.
        """
        results = await asyncio.gather(*(self._run(function, words) for function in self._functions))
        return "\n\n".join(result for result in results if result)

    async def _run(self, function: Callable[..., Any], words: str) -> str:
        if is_coroutine_function(function):
            return await self._result(function, words)
        return await self._in_thread(function, words)

    async def _in_thread(self, function: Callable[..., Any], words: str) -> str:
        texts: list[str] = []

        async def work() -> None:
            try:
                texts.append(await self._result(function, words))
            finally:
                self._thread.release()

        await self._thread.acquire()
        await asyncio.shield(self._host.spawn(work(), "context"))
        return "".join(texts)

    async def _result(self, function: Callable[..., Any], words: str) -> str:
        try:
            return _text(await self._host.run_hook(function, self._call, words))
        except Exception as error:
            self._host.failed(self._call.info, f"the context function {described(function)}", error)
            return ""


def _text(result: object) -> str:
    return str(result or "").strip()
