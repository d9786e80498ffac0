"""An agent on a server: its lifespan, and its hooks before, during and after each call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any

import anyio
from anyio.to_thread import run_sync

from rejoinder.agent.app.agent import Agent, Lifespan
from rejoinder.agent.app.agent_call import AgentCall
from rejoinder.agent.app.answering.who_answered import CallAnswer
from rejoinder.agent.app.call import DETECT, DETECTION, Call, CallInfo, RefusedCall
from rejoinder.agent.app.functions.lifespans import entered
from rejoinder.agent.app.functions.runner import FunctionRunner
from rejoinder.agent.app.guarding.turn_words import TurnWords
from rejoinder.agent.app.memory.caller_facts import CallerFacts
from rejoinder.agent.app.memory.keeper import MemoryKeeper
from rejoinder.agent.app.tool import Successor, Tool, ToolError, by_name
from rejoinder.agent.config import ConfigError
from rejoinder.pipeline import Models, Options, ToolCall, ToolLlm

log = logging.getLogger(__name__)

ANSWER_S = 8.0
"""Longest time that the hooks before a call may take, in seconds; then the call is refused."""
GOODBYE_S = 5.0
"""Longest wait for durable tools and for hooks after calls when the server ends, in seconds."""
TOOL_THREADS = 32
"""Most threads of synchronous tools at a time; further ones wait."""
HOOK_THREADS = 32
"""Most threads of synchronous hooks and context functions; tools that hang hold up no hook."""
GUARD_THREADS = 32
"""Most threads of synchronous guard functions; those that hang hold up no hook."""
BROKEN = "the agent could not take the call"
"""The reason for the caller when a hook before the call failed. The log has the error."""


class AgentHost:
    """Runs one agent for all calls of a server.

    variants: the agent's sets of models, by name, once they are loaded; "" is the server's own.
    """

    def __init__(self, agent: Agent[Any, Any]) -> None:
        self.agent = agent
        self.variants: dict[str, Models] = {}
        self._resources: dict[Lifespan[Any], Any] = {}
        self._memory_thread = anyio.CapacityLimiter(1)  # its waiting tasks run in order
        self._memories = MemoryKeeper(self.run_memory, self.spawn)
        self._tool_runner = FunctionRunner(TOOL_THREADS)
        self._hook_runner = FunctionRunner(HOOK_THREADS)
        self._guard_runner = FunctionRunner(GUARD_THREADS)
        self._tasks: set[asyncio.Task[None]] = set()
        self._mcp_tools: dict[Agent[Any, Any], dict[str, Tool]] = {one: {} for one in agent.reachable}
        self._calls: set[Call[Any, Any]] = set()
        self._retired = asyncio.Event()
        self._free = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Open what the agent's calls share for the length of the block.

        At its end, wait up to ``GOODBYE_S`` for what outlives the calls. Raises BrokenAgent if a lifespan
        fails. Cancelling shortens the wait.
        """
        async with AsyncExitStack() as stack:
            for agent in self._mcp_tools:
                if agent.lifespan not in self._resources:  # agents may share one
                    self._resources[agent.lifespan] = await entered(agent.lifespan, stack)
                await stack.enter_async_context(self._mcp_servers(agent))
                if agent.given_guard:
                    stack.push_async_callback(agent.given_guard.aclose)
            try:
                yield
            finally:
                await self._finish()

    @property
    def models(self) -> dict[str, Mapping[str, str]]:
        """The sets of models of the agent, and of those to which it can hand a call, by name."""
        return {name: specs for agent in reversed(self._mcp_tools) for name, specs in agent.models.items()}

    def check(self, models: Models) -> None:
        """Raise ConfigError if the agent has tools and the language model cannot call any."""
        if not isinstance(models.llm, ToolLlm):
            refuse_tools(self.agent)

    async def answer(self, info: CallInfo, options: Options) -> AgentCall:
        """Run the hooks before a call, and return the agent's side of it.

        Raises RefusedCall, with the reason for the caller, also when a hook fails or takes longer than
        ``ANSWER_S``. Cancelling cancels the hooks.
        """
        call = self._new_call(self.agent, info, options)
        if DETECT in (info.metadata.get(DETECTION), info.query.get(DETECTION)):
            call.detect_machine()
        call.caller_facts = await self._facts(self.agent, info)
        return AgentCall(await self._prepared(call), self)

    async def hand_over(self, call: Call[Any, Any], other: Agent[Any, Any], state: Any) -> Call[Any, Any]:
        """Run another agent's hooks before a call that it takes over, and return its ``Call``.

        state: as for ``Call.hand_to``. Raises ToolError if it refuses the call, and LookupError if the server
        does not know it. Cancelling cancels the hooks.
        """
        if other not in self._mcp_tools:
            raise LookupError(f"{other.name} is unknown here: name it in agents=[...] of another agent")
        options = replace(call.options, greeting="", guard=call.server_guard)
        try:
            new = self._new_call(other, call.info, options)
            new.state = state if state is not None else call.state if new.state is None else new.state
            new.models, new.answering, new.consent = call.models, call.answering, call.consent
            new.caller_facts = await self._facts(other, call.info) if other.memory else call.caller_facts
            return await self._prepared(new)
        except RefusedCall as refused:
            raise ToolError(f"The agent {other.name} does not take the call: {refused}") from None

    def _new_call(self, agent: Agent[Any, Any], info: CallInfo, options: Options) -> Call[Any, Any]:
        try:
            return agent.new_call(info, options, self._resources.get(agent.lifespan), self._mcp_tools[agent])
        except Exception as error:
            self.failed(info, "the agent's state", error)
            raise RefusedCall(BROKEN) from None

    async def _prepared(self, call: Call[Any, Any]) -> Call[Any, Any]:
        info = call.info
        try:
            async with asyncio.timeout(ANSWER_S) as late:
                for hook in call.agent.hooks.on_call:
                    await self.run_hook(hook, call)
        except RefusedCall:
            raise
        except Exception as error:
            if isinstance(error, TimeoutError) and late.expired():
                error = TimeoutError(f"the hooks before the call took longer than {ANSWER_S:g} s")
            self.failed(info, "on_call", error)
            raise RefusedCall(BROKEN) from None
        if call.models and call.models not in self.variants:
            known = ", ".join(filter(None, self.variants)) or "none"
            wrong = LookupError(f"on_call chose models {call.models!r}; the sets are: {known}")
            self.failed(info, "on_call", wrong)
            raise RefusedCall(BROKEN)
        return call

    async def _facts(self, agent: Agent[Any, Any], info: CallInfo) -> CallerFacts:
        return await self._memories.facts(agent.memory, info.caller, partial(self.failed, info))

    async def run_memory(
        self, function: Callable[..., Any], *arguments: Any, may_abandon: bool = False
    ) -> Any:
        """Call a method of a memory in its thread and return the result; its exceptions pass.

        Cancelling waits for the thread, unless ``may_abandon`` is set.
        """
        limiter = self._memory_thread
        return await run_sync(function, *arguments, abandon_on_cancel=may_abandon, limiter=limiter)

    async def run_hook(self, hook: Callable[..., Any], *arguments: Any) -> Any:
        """Call a hook or a context function and return its result; its exceptions pass.

        Cancelling is that of ``FunctionRunner.run``.
        """
        return await self._hook_runner.run(hook, *arguments)

    async def run_guard(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of ``Agent.guard`` and return its result; its exceptions pass.

        Cancelling is that of ``FunctionRunner.run``.
        """
        return await self._guard_runner.run(function, *arguments)

    def failed(self, info: CallInfo, what: str, error: Exception) -> None:
        """Log an exception of the integrator's code in a call. what: the hook or tool that raised it."""
        log.error("call %s: %s failed", info.id, what, exc_info=error)

    def begun(self, call: Call[Any, Any]) -> None:
        """Take the beginning of a call that was answered."""
        self._calls.add(call)

    async def run_tool(self, call: Call[Any, Any], asked: ToolCall) -> str | Successor:
        """Run the tool that the language model calls, and return its result, or who takes the call over.

        Raises ToolError, and passes other exceptions of the tool. Cancelling is that of ``Tool.run``.
        """
        return await by_name(call.tools, asked.name).run(call, asked.arguments, self._tool_runner)

    async def serve(self) -> None:
        """Wait until ``retire`` was called and the calls are over. Cancelling stops waiting."""
        await self._retired.wait()
        while self._calls:
            self._free.clear()
            await self._free.wait()

    def retire(self) -> None:
        """Take no further calls: another agent has replaced this one."""
        self._retired.set()

    def ended(self, calls: Sequence[Call[Any, Any]], reason: str, seconds: float) -> None:
        """Take the end of a call, and run the hooks after it in a task of their own.

        calls: those of each agent that had the call, in order.
        """
        for call in calls:
            call.ended, call.seconds = reason or "the call is over", seconds
            self._calls.discard(call)
        if not self._calls:
            self._free.set()
        if any(call.agent.hooks.on_end for call in calls):
            self.spawn(self._run_on_end(calls), "on_end")

    async def _run_on_end(self, calls: Sequence[Call[Any, Any]]) -> None:
        for call in calls:
            await self._run_all(call.agent.hooks.on_end, "on_end", call)

    def turned(self, call: Call[Any, Any], words: str) -> None:
        """Take a turn of the caller, and run the hooks after it in a task of their own."""
        if hooks := call.agent.hooks.on_turn:
            self.spawn(self._run_all(hooks, "on_turn", call, TurnWords(words)), "on_turn")

    def replied(self, call: Call[Any, Any], words: str) -> None:
        """Take the end of a reply, and run the hooks after it in a task of their own."""
        if hooks := call.agent.hooks.on_reply:
            self.spawn(self._run_all(hooks, "on_reply", call, words), "on_reply")

    async def answered(self, call: Call[Any, Any], answer: CallAnswer) -> None:
        """Run the hooks that learn who answered a call. Cancelling cancels them."""
        await self._run_all(call.agent.hooks.on_answered_by, "on_answered_by", call, answer)

    async def _run_all(
        self, hooks: Sequence[Callable[..., Any]], name: str, call: Call[Any, Any], *arguments: Any
    ) -> None:
        for hook in hooks:
            try:
                await self.run_hook(hook, call, *arguments)
            except Exception as error:
                self.failed(call.info, name, error)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run a coroutine in a task that may outlive its call, and return the task."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def _mcp_servers(self, agent: Agent[Any, Any]) -> AbstractAsyncContextManager[None]:
        if not agent.mcp:
            return nullcontext()
        from rejoinder.agent.app.mcp.servers import McpServers  # the SDK is an extra, and slow to import

        return McpServers(agent.mcp, self._mcp_tools[agent], self._tools_changed).running()

    def _tools_changed(self) -> None:
        for call in self._calls:
            call.refresh()

    async def _finish(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=GOODBYE_S)
        for task in self._tasks:
            log.warning("%s did not end within %g s after the last call", task.get_name(), GOODBYE_S)
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)


def refuse_tools(agent: Agent[Any, Any]) -> None:
    """Raise ConfigError if an agent has tools, or one that gets its calls: the language model calls none."""
    tools = [tool for one in agent.reachable for tool in one.tools]
    if names := tools + [server.name for one in agent.reachable for server in one.mcp]:
        raise ConfigError(
            f"the agent has tools ({', '.join(names)}), and this language model cannot call tools: "
            "choose one with llama:, vllm: or openai: (setting llm)"
        )
