"""A second language model that does what takes long, while the agent talks on with the caller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

from rejoinder.agent.app.call import Call, check_text
from rejoinder.agent.app.text_answers import answered
from rejoinder.agent.app.tool import Sequel, Tool, ToolError, add_tool, tool_of
from rejoinder.agent.app.tool_result import ToolResult
from rejoinder.pipeline import History, Llm, ToolCall, Tools

WORKER_TIMEOUT_S = 120.0
"""Default for the longest time that one task may take, in seconds."""
MOST_WORKER_TOKENS = 4_000
"""Most tokens of the conversation and of the results of tools in the worker's prompt."""
TASK = "A caller and an agent have said this:\n\n{}\n\nThe agent asks you for this: {}"
"""What the worker's language model reads. Without the conversation it could not know who "they" are."""
WORKER_INSTRUCTIONS = (
    "You work for an agent on the telephone, who asks you for something. Do it with your tools, and report "
    "the result in one or two short sentences."
)
"""The default system prompt of a worker."""
ABOUT = "Ask a colleague, who takes a while: {}. Go on talking meanwhile; the answer comes later."
"""The description of the tool for the agent's language model."""

Function = TypeVar("Function", bound=Callable[..., Any])


class Worker:
    """A language model that works behind an agent: a small model talks, a strong one does the task.

    does: what it can do, for the agent's language model, such as "changes and cancels bookings".
    llm: spec of its language model, such as "medium"; "" for the server's own.
    tools: functions that it may call; ``Worker.tool`` adds more. Those with a parameter of type ``Call`` get
        the caller's. instructions: its system prompt.
    name: of the tool with which the agent asks it. timeout_s: longest time that one task may take, in
        seconds.

    Raises TypeError and ValueError like ``Agent``.
    """

    def __init__(
        self,
        does: str,
        *,
        llm: str = "",
        tools: Sequence[Callable[..., Any]] = (),
        instructions: str = WORKER_INSTRUCTIONS,
        name: str = "ask_colleague",
        timeout_s: float = WORKER_TIMEOUT_S,
    ) -> None:
        for what, text in (("does", does), ("llm", llm), ("instructions", instructions), ("name", name)):
            check_text(f"Worker's {what}", text)
        self.does = does.strip().rstrip(".")
        if not self.does:
            raise TypeError("say what the worker can do: the agent's language model has to know it")
        self.llm = llm
        self.instructions = instructions
        self.tools: dict[str, Tool] = {}
        self.name = name
        self.timeout_s = timeout_s
        for function in tools:
            self.tool(function)

    def tool(self, function: Function) -> Function:
        """Let the worker's language model call a function; a decorator. Raises TypeError and ValueError."""
        add_tool(self.tools, tool_of(function))
        return function

    @property
    def asked(self) -> Tool:
        """The tool with which the agent's language model asks the worker. It makes a ``Task``."""

        async def ask(task: str) -> Task:
            return Task(self, task)

        ask.__doc__ = f"{ABOUT.format(self.does)}\n\nArgs:\n    task: what to do, with all that it needs"
        return tool_of(ask, name=self.name, background=True, keep_on_interrupt=True)


@dataclass(frozen=True, slots=True)
class Task(Sequel):
    """What an agent asks of its worker."""

    worker: Worker
    text: str

    async def work(self, call: Call, llm: Llm, run: Callable[[ToolCall], Awaitable[ToolResult]]) -> str:
        """Return what the worker's language model reports of the task.

        call: whose conversation it belongs to. run: runs a tool of the worker. Raises ToolError after the
        worker's ``timeout_s``, and ModelError. Cancelling cancels the tools.
        """
        worker, words = self.worker, list[str]()
        history = History(worker.instructions, tokens=MOST_WORKER_TOKENS)
        history.condenses = True  # the task stays in the prompt, whatever the tools return
        history.add_user(self._prompt(call))
        tools = Tools([tool.definition for tool in worker.tools.values()])
        try:
            async with (
                asyncio.timeout(worker.timeout_s),
                aclosing(answered(llm, history, tools, run)) as pieces,
            ):
                async for piece in pieces:
                    words = [*words, piece] if piece else []  # what precedes a tool's result is no report
        except TimeoutError:
            raise ToolError(f"{worker.name} did not finish within {worker.timeout_s:g} s.") from None
        return "".join(words).strip()

    def _prompt(self, call: Call) -> str:
        """Return the task with the conversation so far."""
        sides = {"user": "Caller", "assistant": "Agent"}
        said = [(sides.get(one["role"]), one["content"]) for one in call.transcript]
        lines = [f"{side}: {words}" for side, words in said if side and words]
        return TASK.format("\n".join(lines) or "(nothing)", self.text)
