"""An agent's host in a simulated call: it records what the tools do, and keeps time for them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, asynccontextmanager, nullcontext
from typing import Any

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.agent_call import AgentCall
from rejoinder.agent.app.call import Call, CallInfo
from rejoinder.agent.app.functions.places import said_of
from rejoinder.agent.app.functions.runner import is_coroutine_function
from rejoinder.agent.app.host import AgentHost
from rejoinder.agent.app.tool import Successor, ToolError
from rejoinder.agent.simulate.failures import CodeFailure
from rejoinder.agent.simulate.tool_use import ToolUse, arguments_of
from rejoinder.agent.simulate.virtual_clock import in_real_time, standing_still
from rejoinder.pipeline import Options, ToolCall

log = logging.getLogger(__name__)


class SimulatedHost(AgentHost):
    """Runs an agent in virtual time.

    A tool or hook that is a coroutine function sleeps in virtual time. Any other function runs in a thread,
    and virtual time stands still until it returns. real_time: virtual time passes as real time does while the
    agent's lifespan, a hook or a tool runs, so that they may wait for sockets; with MCP servers, it does so
    during the whole call.

    tools_called: all calls of tools, in order. failures: the exceptions of the agent's code, in order.
    """

    def __init__(self, agent: Agent[Any, Any], real_time: bool = False) -> None:
        super().__init__(agent)
        self.tools_called: list[ToolUse] = []
        self.failures: list[CodeFailure] = []
        self._real_time = real_time
        self._waited_for = 0

    @property
    def working(self) -> bool:
        """Whether a tool runs that does not run in the background."""
        return self._waited_for > 0

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Open what the agent's calls share for the length of the block. Cancelling ends it."""
        async with AsyncExitStack() as stack:
            pace = ExitStack()
            pace.enter_context(self._pace())
            stack.callback(pace.close)
            await stack.enter_async_context(super().running())
            if not any(
                agent.mcp for agent in self.agent.reachable
            ):  # their connections work during the whole call
                pace.close()
            stack.callback(lambda: pace.enter_context(self._pace()))
            yield

    async def answer(self, info: CallInfo, options: Options) -> AgentCall:
        """Run the hooks before a call; raising and cancelling are those of ``AgentHost.answer``."""
        with self._pace():
            return await super().answer(info, options)

    async def run_hook(self, hook: Callable[..., Any], *arguments: Any) -> Any:
        """Call a hook; raising and cancelling are those of ``AgentHost.run_hook``."""
        with self._pace(nullcontext() if is_coroutine_function(hook) else standing_still()):
            return await super().run_hook(hook, *arguments)

    async def run_guard(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a guard function; raising and cancelling are those of ``AgentHost.run_guard``."""
        with self._pace(nullcontext() if is_coroutine_function(function) else standing_still()):
            return await super().run_guard(function, *arguments)

    async def run_memory(
        self, function: Callable[..., Any], *arguments: Any, may_abandon: bool = False
    ) -> Any:
        """Call a method of a memory; raising and cancelling are those of ``AgentHost.run_memory``."""
        with self._pace(standing_still()):
            return await super().run_memory(function, *arguments, may_abandon=may_abandon)

    def failed(self, info: CallInfo, what: str, error: Exception) -> None:
        """Record an exception of the agent's code."""
        self.failures.append(CodeFailure(what, error, asyncio.get_running_loop().time()))
        log.debug("%s failed", what, exc_info=error)

    async def run_tool(self, call: Call[Any, Any], asked: ToolCall) -> str | Successor:
        """Run a tool, and record its call; raising and cancelling are those of ``AgentHost.run_tool``."""
        loop = asyncio.get_running_loop()
        use = ToolUse(asked.name, arguments_of(asked.arguments), at=loop.time())
        self.tools_called.append(use)
        tool = call.tools.get(asked.name)
        waited_for = tool is None or not tool.background
        threaded = tool is not None and not is_coroutine_function(tool.function)
        self._waited_for += waited_for
        try:
            with self._pace(standing_still() if threaded else nullcontext()):
                result = await super().run_tool(call, asked)
            use.status = "done"
            use.result = (
                result if isinstance(result, str) else f"the call goes to {getattr(result, 'name', result)}"
            )
            return result
        except ToolError as error:
            use.status, use.result = "error", str(error)
            raise
        except asyncio.CancelledError:
            use.status = "cancelled"
            raise
        except Exception as error:
            use.status, use.result, use.error = "failed", said_of(error), error
            raise
        finally:
            use.seconds = loop.time() - use.at
            self._waited_for -= waited_for

    def _pace(self, otherwise: AbstractContextManager[None] | None = None) -> AbstractContextManager[None]:
        return in_real_time() if self._real_time else otherwise or nullcontext()
