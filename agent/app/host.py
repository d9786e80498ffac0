"""An agent on a server: its lifespan, its hooks, and the tools of all calls, also those that outlive them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.agent_call import AgentCall
from rejoinder.agent.app.call import Call, CallInfo, RefusedCall
from rejoinder.agent.app.functions.lifespans import entered
from rejoinder.agent.app.functions.runner import FunctionRunner
from rejoinder.agent.app.tool import ToolError, by_name
from rejoinder.agent.config import ConfigError
from rejoinder.agent.instructions import dated
from rejoinder.pipeline import Llm, Options, ToolCall, ToolLlm, Tools

log = logging.getLogger(__name__)

ANSWER_S = 8.0
"""Longest time that the hooks before a call may take, in seconds; then the call is refused."""
GOODBYE_S = 5.0
"""Longest wait for kept tools and for hooks after calls when the server ends, in seconds."""
TOOL_THREADS = 32
"""Most threads of synchronous tools at a time; further ones wait."""
HOOK_THREADS = 32
"""Most threads of synchronous hooks at a time; tools that hang hold up no hook."""
BROKEN = "the agent could not take the call"
"""The reason for the caller when a hook before the call failed. The log has the error."""
FAILED = (
    "The tool failed, for a reason that only the operator can read. Tell the caller that it did not work."
)
"""The result of a tool that raised an exception. Its text may hold secrets, so the model does not get it."""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a tool, for the language model. wrong: whether it is an error that the model can mend."""

    text: str
    wrong: bool = False


class AgentHost:
    """Runs one agent for all calls of a server."""

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self._resources: Any = None
        self._runner = FunctionRunner(TOOL_THREADS)
        self._hook_runner = FunctionRunner(HOOK_THREADS)
        self._tasks: set[asyncio.Task[None]] = set()
        self._calls: set[Call] = set()
        self._retired = asyncio.Event()
        self._free = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Open what the agent's calls share, for the length of the block. Raises BrokenAgent.

        Cancelling cancels the agent's lifespan.
        """
        async with AsyncExitStack() as stack:
            if self.agent.lifespan:
                self._resources = await entered(self.agent.lifespan, stack)
            yield

    def check(self, llm: Llm) -> None:
        """Raise ConfigError if the agent has tools and the language model cannot call any."""
        if self.agent.tools and not isinstance(llm, ToolLlm):
            names = ", ".join(self.agent.tools)
            reason = "this language model cannot call tools: set llm to small, or to llama:, vllm: or openai:"
            raise ConfigError(f"the agent has tools ({names}), and {reason}")

    def options(self, options: Options) -> Options:
        """Return the options of a server's sessions with the words of the agent."""
        words = dated(self.agent.instructions, datetime.now())
        return replace(
            options,
            instructions=words or options.instructions,
            examples=() if words else options.examples,
            greeting=self.agent.greeting or options.greeting,
        )

    async def answer(self, info: CallInfo, options: Options) -> AgentCall | None:
        """Run the hooks before a call, and return the agent's side of it; None if it has no part in calls.

        options: of the call's session; the hooks may change them, in ``AgentCall.call``. Raises RefusedCall,
        with the reason for the caller, also when a hook fails or takes longer than ``ANSWER_S``. Cancelling
        cancels the hooks.
        """
        if not self._takes_part:
            return None
        try:
            call = self.new_call(info, options)
        except Exception as error:
            _log_failed(info, "the agent's state", error)
            raise RefusedCall(BROKEN) from None
        try:
            async with asyncio.timeout(ANSWER_S) as late:
                for hook in self.agent.hooks.on_call:
                    await self._hook_runner.run(hook, call)
        except RefusedCall:
            raise
        except Exception as error:
            if isinstance(error, TimeoutError) and late.expired():
                error = TimeoutError(f"the hooks before the call took longer than {ANSWER_S:g} s")
            _log_failed(info, "on_call", error)
            raise RefusedCall(BROKEN) from None
        self._calls.add(call)
        return AgentCall(call, self)

    async def serve(self) -> None:
        """Wait until ``retire`` was called and the calls are over. Cancelling stops waiting."""
        await self._retired.wait()
        while self._calls:
            self._free.clear()
            await self._free.wait()

    def retire(self) -> None:
        """Take no further calls."""
        self._retired.set()

    def new_call(self, info: CallInfo, options: Options) -> Call:
        """Return a call that has not begun, with the integrator's state; its exceptions pass."""
        state = self.agent.state() if self.agent.state else None
        return Call(info, state, self._resources, options, self.agent.tools)

    def turned(self, call: Call, words: str) -> None:
        """Take a turn of the caller, and run the hooks after it in a task of their own."""
        if hooks := self.agent.hooks.on_turn:
            self.spawn(self._run_hooks(hooks, "on_turn", call, words), "on_turn")

    def ended(self, call: Call) -> None:
        """Take the end of a call, and run the hooks after it in a task of their own."""
        self._calls.discard(call)
        self._free.set()
        if hooks := self.agent.hooks.on_end:
            self.spawn(self._run_hooks(hooks, "on_end", call), "on_end")

    async def _run_hooks(
        self, hooks: Sequence[Callable[..., Any]], name: str, call: Call, *arguments: Any
    ) -> None:
        for hook in hooks:
            try:
                await self._hook_runner.run(hook, call, *arguments)
            except Exception as error:
                _log_failed(call.info, name, error)

    @property
    def fillers(self) -> Sequence[str]:
        """What the agent says while a caller waits; nothing where it has no part in calls."""
        return self.agent.fillers if self._takes_part else ()

    @property
    def _takes_part(self) -> bool:
        hooks = self.agent.hooks
        return bool(self.agent.tools or hooks.on_call or hooks.on_turn or hooks.on_end)

    @property
    def tools(self) -> Tools:
        """The agent's tools, for a language model."""
        return Tools([tool.definition for tool in self.agent.tools.values()])

    async def run_tool(self, call: Call, asked: ToolCall) -> ToolResult:
        """Run the tool of a call that the language model calls. An exception of the tool is logged.

        Cancelling is that of ``Tool.run``.
        """
        try:
            tool = by_name(call.tools, asked.name)
            return ToolResult(await tool.run(call, asked.arguments, self._runner))
        except ToolError as error:
            return ToolResult(str(error), wrong=True)
        except Exception as error:
            _log_failed(call.info, f"the tool {asked.name}", error)
            return ToolResult(FAILED)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run a coroutine in a task that may outlive its call, and return the task."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def aclose(self) -> None:
        """Wait up to ``GOODBYE_S`` for what outlives the calls. Cancelling shortens the wait."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=GOODBYE_S)
        for task in self._tasks:
            log.warning("%s did not end within %g s after the last call", task.get_name(), GOODBYE_S)
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


def _log_failed(info: CallInfo, what: str, error: Exception) -> None:
    """Log an exception of the integrator's code in a call. what: the hook or tool that raised it."""
    log.error("call %s: %s failed", info.id, what, exc_info=error)
