"""An agent: what it says, and the functions that its language model may call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, overload

from rejoinder.agent.app.tool import TOOL_TIMEOUT_S, Tool, tool_of

Function: TypeAlias = Callable[..., Any]


class Agent:
    """The agent of an integrator. One object serves all calls; ``Call`` holds what belongs to one.

    instructions: the system prompt, "" for the server's. ``{date}``, ``{tomorrow}`` and ``{time}`` become
    those at the beginning of the call.
    greeting: the exact first words of each call, "" for the server's.
    tools: functions that the language model may call; ``Agent.tool`` adds more.

    Tools that are coroutine functions run on the event loop, which all calls share. Others run in threads.

    Raises TypeError for an argument of a wrong type and for a function that cannot be a tool, and ValueError
    for a second tool of the same name.
    """

    def __init__(self, instructions: str = "", *, greeting: str = "", tools: Sequence[Function] = ()) -> None:
        for name, text in (("instructions", instructions), ("greeting", greeting)):
            if not isinstance(text, str):
                raise TypeError(f"{name} is of type {type(text).__name__}: it must be text")
        self.instructions = instructions
        self.greeting = greeting
        self.tools: dict[str, Tool] = {}
        for function in tools:
            self.tool(function)

    @overload
    def tool(self, function: Function) -> Function: ...

    @overload
    def tool(
        self,
        *,
        name: str = "",
        timeout_s: float = TOOL_TIMEOUT_S,
        background: bool = False,
        keep_on_interrupt: bool = False,
    ) -> Callable[[Function], Function]: ...

    def tool(
        self,
        function: Function | None = None,
        *,
        name: str = "",
        timeout_s: float = TOOL_TIMEOUT_S,
        background: bool = False,
        keep_on_interrupt: bool = False,
    ) -> Function | Callable[[Function], Function]:
        """Let the language model call a function; use it as a decorator, with or without options.

        The options are those of ``Tool``. Raises TypeError for a function that cannot be a tool, and
        ValueError for a second tool of the same name.
        """

        def add(given: Function) -> Function:
            made = tool_of(
                given,
                name=name,
                timeout_s=timeout_s,
                background=background,
                keep_on_interrupt=keep_on_interrupt,
            )
            if made.name in self.tools:
                raise ValueError(f"there is a tool {made.name} already: give this one another name")
            self.tools[made.name] = made
            return given

        return add if function is None else add(function)
