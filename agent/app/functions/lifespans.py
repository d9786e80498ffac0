"""Opens what an agent's calls share."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from types import TracebackType
from typing import Any

from rejoinder.agent.app.functions.mistakes import broken
from rejoinder.agent.app.functions.places import described


async def entered(lifespan: Callable[[], AbstractAsyncContextManager[Any]], stack: AsyncExitStack) -> Any:
    """Return what a lifespan yields; it ends with the stack.

    Raises BrokenAgent where its code raises an exception, also from the stack's end. Cancelling cancels it.
    """
    what = f"the lifespan {described(lifespan)} failed"
    try:
        context = lifespan()
        if not hasattr(context, "__aenter__"):
            raise TypeError("it is no asynchronous context manager: decorate it with @asynccontextmanager")
        resources = await context.__aenter__()
    except Exception as error:
        raise broken(what, error) from error

    async def leave(
        kind: type[BaseException] | None, raised: BaseException | None, trace: TracebackType | None
    ) -> bool:
        try:
            return bool(await context.__aexit__(kind, raised, trace))
        except Exception as error:
            if error is raised:
                raise
            raise broken(f"{what} at its end", error) from error

    stack.push_async_exit(leave)
    return resources
