"""An agent on a server: its lifespan, its hooks, and the tools of all calls, also those that outlive them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

from rejoinder.agent.app.agent import Agent, Lifespan
from rejoinder.agent.app.agent_call import AgentCall
from rejoinder.agent.app.call import Call, CallInfo, RefusedCall
from rejoinder.agent.app.functions.lifespans import entered
from rejoinder.agent.app.functions.runner import FunctionRunner
from rejoinder.agent.app.giving_up import GiveUp
from rejoinder.agent.app.guarding.turn_words import TurnWords
from rejoinder.agent.app.knowledge import Knowledge
from rejoinder.agent.app.tool import Tool, ToolError, by_name
from rejoinder.agent.app.tool_result import TAKEN_OVER, TOOL_FAILED, ToolResult
from rejoinder.agent.app.worker import Task
from rejoinder.agent.config import ConfigError
from rejoinder.agent.instructions import dated
from rejoinder.pipeline import Guard, Llm, Models, Options, ToolCall, ToolLlm, Tools

log = logging.getLogger(__name__)

Result = TypeVar("Result")
"""What a task returns."""

ANSWER_S = 8.0
"""Longest time that the hooks before a call may take, in seconds; then the call is refused."""
GOODBYE_S = 5.0
"""Longest wait for kept tools and for hooks after calls when the server ends, in seconds."""
TOOL_THREADS = 32
"""Most threads of synchronous tools at a time; further ones wait."""
HOOK_THREADS = 32
"""Most threads of synchronous hooks at a time; tools that hang hold up no hook."""
GUARD_THREADS = 32
"""Most threads of synchronous guard functions at a time; those that hang hold up no hook."""
ONLY_AGENTS = "This tool hands the call over, which only the agent itself can do."
"""The result of a worker's tool that returns an agent."""
BROKEN_AGENT = "the agent could not take the call"
"""The reason for the caller when a hook before the call failed. The log has the error."""


class AgentHost:
    """Runs one agent for all calls of a server, and those to which it can hand a call.

    variants: the agents' sets of models, by name, once they are loaded. llms: the language models of their
    workers, by spec; "" is the server's. runner: runs their functions. give_up: runs like the hooks of
    ``Agent.on_failure``, for all agents; None for nothing.
    """

    def __init__(
        self,
        agent: Agent,
        runner: type[FunctionRunner] = FunctionRunner,
        give_up: GiveUp | None = None,
    ) -> None:
        self.agent = agent
        self.give_up = give_up
        self.variants: dict[str, Models] = {}
        self.llms: dict[str, Llm] = {}
        self._agents = agent.reachable
        self._resources: dict[Lifespan[Any], Any] = {}
        self._runner = runner(TOOL_THREADS)
        self._hook_runner = runner(HOOK_THREADS)
        self._guard_runner = runner(GUARD_THREADS)
        self._server_guard: Guard | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        self._calls: set[Call] = set()
        self._retired = asyncio.Event()
        self._free = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Open what the agent's calls share, for the length of the block. Raises BrokenAgent.

        Cancelling cancels the agent's lifespan.
        """
        async with AsyncExitStack() as stack:
            for agent in self._agents:
                if agent.lifespan and agent.lifespan not in self._resources:  # agents may share one
                    self._resources[agent.lifespan] = await entered(agent.lifespan, stack)
                if agent.given_guard:
                    stack.push_async_callback(agent.given_guard.aclose)
            yield

    @property
    def models(self) -> dict[str, Mapping[str, str]]:
        """The sets of models of the agents, by name."""
        return {name: specs for agent in reversed(self._agents) for name, specs in agent.models.items()}

    @property
    def worker_llms(self) -> list[str]:
        """The specs of the language models of the agents' workers, without the server's."""
        specs = [agent.delegate.llm for agent in self._agents if agent.delegate]
        return list(dict.fromkeys(filter(None, specs)))

    def use(self, llm: Llm) -> None:
        """Take the server's language model. Raises ConfigError if the agent has tools that it cannot call."""
        self.llms[""] = llm
        tools = [name for agent in self._agents for name in agent.tools]
        if tools and not isinstance(llm, ToolLlm):
            names = ", ".join(tools)
            reason = "this language model cannot call tools: set llm to small, or to llama:, vllm: or openai:"
            raise ConfigError(f"the agent has tools ({names}), and {reason}")

    def options(self, options: Options) -> Options:
        """Return the options of a server's sessions with the words and the guard of the agent."""
        self._server_guard = options.guard
        return _with_words(options, self.agent)

    async def answer(self, info: CallInfo, options: Options) -> AgentCall | None:
        """Run the hooks before a call, and return the agent's side of it; None if it has no part in calls.

        options: of the call's session; the hooks may change them, in ``AgentCall.call``. Raises RefusedCall,
        with the reason for the caller, also when a hook fails or takes longer than ``ANSWER_S``. Cancelling
        cancels the hooks.
        """
        if not self._takes_part:
            return None
        call = self._called(self.agent, info, options)
        await self._prepare(call)
        self._calls.add(call)
        return AgentCall(call, self)

    async def hand_over(self, call: Call, other: Agent[Any, Any]) -> Call:
        """Run another agent's hooks before a call that it takes over, and return its ``Call``.

        It gets the state of the call if it makes none. Raises ToolError if it refuses the call, and
        LookupError if the server does not know it. Cancelling cancels the hooks.
        """
        if other not in self._agents:
            raise LookupError(f"{other.name} is unknown here: name it in agents=[...] of another agent")
        options = replace(call.options, greeting="", guard=self._server_guard)
        try:
            new = self._called(other, call.info, _with_words(options, other))
            new.state = call.state if new.state is None else new.state
            new.models = call.models
            await self._prepare(new)
        except RefusedCall as refused:
            raise ToolError(f"The agent {other.name} does not take the call: {refused}") from None
        self._calls.add(new)
        return new

    def _called(self, agent: Agent[Any, Any], info: CallInfo, options: Options) -> Call:
        try:
            return self.new_call(info, options, agent)
        except Exception as error:
            self.failed(info, "the agent's state", error)
            raise RefusedCall(BROKEN_AGENT) from None

    async def _prepare(self, call: Call) -> None:
        """Run the hooks before a call. Raises RefusedCall."""
        assert call.agent is not None
        try:
            async with asyncio.timeout(ANSWER_S) as late:
                for hook in call.agent.hooks.on_call:
                    await self.run_hook(hook, call)
            if call.models and call.models not in self.variants:
                known = ", ".join(self.variants) or "none"
                raise LookupError(f"it chose models {call.models!r}; the sets are: {known}")
        except RefusedCall:
            raise
        except Exception as error:
            if isinstance(error, TimeoutError) and late.expired():
                error = TimeoutError(f"the hooks before the call took longer than {ANSWER_S:g} s")
            self.failed(call.info, "on_call", error)
            raise RefusedCall(BROKEN_AGENT) from None

    async def serve(self) -> None:
        """Wait until ``retire`` was called and the calls are over. Cancelling stops waiting."""
        await self._retired.wait()
        while self._calls:
            self._free.clear()
            await self._free.wait()

    def retire(self, now: bool = False) -> None:
        """Take no further calls. now: whether those that there were are over."""
        if now:
            self._calls.clear()
            self._free.set()
        self._retired.set()

    def new_call(self, info: CallInfo, options: Options, agent: Agent[Any, Any] | None = None) -> Call:
        """Return a call that has not begun, with the integrator's state; its exceptions pass.

        agent: whose call it is, None for the first one.
        """
        agent = agent or self.agent
        state = agent.state() if agent.state else None
        resources = self._resources[agent.lifespan] if agent.lifespan else None
        return Call(info, state, resources, options, agent.tools, agent)

    def knowledge(self, call: Call) -> Knowledge | None:
        """Return what the context functions of a call's agent know; None if it has no such functions."""
        functions = call.agent.hooks.context if call.agent else ()
        return Knowledge(call, functions, self) if functions else None

    async def run_hook(self, hook: Callable[..., Any], *arguments: Any) -> Any:
        """Run a hook and return its result; its exceptions pass. Cancelling is that of ``FunctionRunner``."""
        return await self._hook_runner.run(hook, *arguments)

    async def run_guard(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Call a function of ``Agent.guard`` and return its result; its exceptions pass.

        Cancelling is that of ``FunctionRunner``.
        """
        return await self._guard_runner.run(function, *arguments)

    def replied(self, call: Call, words: str) -> None:
        """Take the end of a reply, and run the hooks after it in a task of their own."""
        if call.agent and (hooks := call.agent.hooks.on_reply):
            self.spawn(self._run_hooks(hooks, "on_reply", call, words), "on_reply")

    def turned(self, call: Call, words: str) -> None:
        """Take a turn of the caller, and run the hooks after it in a task of their own."""
        if call.agent and (hooks := call.agent.hooks.on_turn):
            self.spawn(self._run_hooks(hooks, "on_turn", call, TurnWords(words)), "on_turn")

    def reply_failed(self, call: Call, failures: int) -> asyncio.Task[None] | None:
        """Take a reply that failed, and run the hooks after it in a task of their own, if there are any.

        failures: replies that have failed in a row. The caller cancels the task if the call is over.
        """
        hooks = list(call.agent.hooks.on_failure) if call.agent else []
        if self.give_up:
            hooks.append(self.give_up)
        if not hooks:
            return None
        running = (self._run_hooks([hook], "on_failure", call, failures) for hook in hooks)
        return self.spawn(_together(running), "on_failure")

    def ended(self, calls: Sequence[Call]) -> None:
        """Take the end of a call, and run the hooks after it in a task of their own.

        calls: those of each agent that had the call, in order.
        """
        self._calls.difference_update(calls)
        self._free.set()
        for call in calls:
            if call.agent and (hooks := call.agent.hooks.on_end):
                self.spawn(self._run_hooks(hooks, "on_end", call), "on_end")

    def failed(self, info: CallInfo, what: str, error: Exception) -> None:
        """Log an exception of the integrator's code in a call. what: the hook or tool that raised it."""
        log.error("call %s: %s failed", info.id, what, exc_info=error)

    async def _run_hooks(
        self, hooks: Sequence[Callable[..., Any]], name: str, call: Call, *arguments: Any
    ) -> None:
        for hook in hooks:
            try:
                await self.run_hook(hook, call, *arguments)
            except Exception as error:
                self.failed(call.info, name, error)

    @property
    def known_words(self) -> Sequence[str]:
        """What the agents may have to say at once: fillers, where they have a part in calls, and refusals."""
        fillers = [filler for agent in self._agents for filler in agent.fillers] if self._takes_part else []
        return [*fillers, *(agent.given_guard.say for agent in self._agents if agent.given_guard)]

    @property
    def _takes_part(self) -> bool:
        hooks = self.agent.hooks
        other = hooks.on_call or hooks.on_turn or hooks.on_end or hooks.on_failure or hooks.on_reply
        other = other or hooks.guard
        return bool(self.answers_text or other or self.give_up)

    @property
    def answers_text(self) -> bool:
        """Whether the agent has a part in answers to typed words."""
        return bool(self.agent.tools or self.agent.hooks.context)

    @property
    def tools(self) -> Tools:
        """The agent's tools, for a language model."""
        return Tools([tool.definition for tool in self.agent.tools.values()])

    async def run_tool(self, call: Call, asked: ToolCall) -> ToolResult:
        """Run the tool of a call that the language model calls. An exception of the tool is logged.

        Cancelling is that of ``Tool.run``.
        """
        return await self._run(call, call.tools, True, asked)

    async def _run(
        self, call: Call, tools: Mapping[str, Tool], may_hand_over: bool, asked: ToolCall
    ) -> ToolResult:
        try:
            result = await by_name(tools, asked.name).run(call, asked.arguments, self._runner)
            match result:
                case Agent():
                    return ToolResult(TAKEN_OVER, result) if may_hand_over else ToolResult(ONLY_AGENTS)
                case Task(worker):
                    run = partial(self._run, call, worker.tools, False)
                    return ToolResult(await result.work(call, self.llms[worker.llm], run))
            return ToolResult(str(result))
        except ToolError as error:
            return ToolResult(str(error), wrong=True)
        except Exception as error:
            self.failed(call.info, f"the tool {asked.name}", error)
            return ToolResult(TOOL_FAILED, failed=True)

    def spawn(self, work: Coroutine[Any, Any, Result], name: str) -> asyncio.Task[Result]:
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


async def _together(running: Iterable[Coroutine[Any, Any, None]]) -> None:
    """Run coroutines at the same time: one that hangs holds up no other."""
    async with asyncio.TaskGroup() as tasks:
        for one in running:
            tasks.create_task(one)


def _with_words(options: Options, agent: Agent[Any, Any]) -> Options:
    words = dated(agent.instructions, datetime.now())
    return replace(
        options,
        instructions=words or options.instructions,
        examples=() if words else options.examples,
        greeting=agent.greeting or options.greeting,
        guard=agent.given_guard or options.guard,
        compress=agent.compress or options.compress,
    )
