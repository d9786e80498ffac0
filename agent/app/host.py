"""An agent on a server: it runs the tools of all calls, also those that outlive their call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.agent_call import AgentCall
from rejoinder.agent.app.call import Call, CallInfo
from rejoinder.agent.app.functions.runner import FunctionRunner
from rejoinder.agent.app.tool import ToolError, by_name
from rejoinder.agent.config import ConfigError
from rejoinder.agent.instructions import dated
from rejoinder.pipeline import Llm, Options, ToolCall, ToolLlm, Tools

log = logging.getLogger(__name__)

GOODBYE_S = 5.0
"""Longest wait for kept tools when the server ends, in seconds."""
TOOL_THREADS = 32
"""Most threads of synchronous tools at a time; further ones wait."""
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
        self._runner = FunctionRunner(TOOL_THREADS)
        self._tasks: set[asyncio.Task[None]] = set()

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

    def answer(self, info: CallInfo) -> AgentCall | None:
        """Return the agent's side of a call that begins, None for an agent without tools."""
        return AgentCall(Call(info), self) if self.agent.tools else None

    @property
    def tools(self) -> Tools:
        """The agent's tools, for a language model."""
        return Tools([tool.definition for tool in self.agent.tools.values()])

    async def run_tool(self, call: Call, asked: ToolCall) -> ToolResult:
        """Run the tool that the language model calls. An exception of the tool is logged.

        Cancelling is that of ``Tool.run``.
        """
        try:
            tool = by_name(self.agent.tools, asked.name)
            return ToolResult(await tool.run(call, asked.arguments, self._runner))
        except ToolError as error:
            return ToolResult(str(error), wrong=True)
        except Exception as error:
            log.error("call %s: the tool %s failed", call.info.id, asked.name, exc_info=error)
            return ToolResult(FAILED)

    def spawn(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """Run a coroutine in a task that may outlive its call, and return the task."""
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def aclose(self) -> None:
        """Wait up to ``GOODBYE_S`` for the tools that outlive their calls. Cancelling shortens the wait."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=GOODBYE_S)
        for task in self._tasks:
            log.warning("%s did not end within %g s after the last call", task.get_name(), GOODBYE_S)
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
