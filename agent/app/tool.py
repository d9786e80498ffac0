"""A tool: a Python function that the language model may call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import anyio
import docstring_parser
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import PydanticSerializationError

from rejoinder.agent.app.call import Call
from rejoinder.agent.app.functions.arguments import arguments_of, schema_of, values_of
from rejoinder.agent.app.functions.runner import FunctionRunner
from rejoinder.pipeline.prompt import Entry, Key

TOOL_TIMEOUT_S = 30.0
"""Default for the longest run of a tool, in seconds."""
MAX_RESULT = 16_000
"""Most characters of a result; the rest is cut off, because each character costs every later prompt."""
CUT_NOTE = " (The rest is cut off.)"
"""Ends a result that is longer than ``MAX_RESULT``."""

_ANY: TypeAdapter[Any] = TypeAdapter(Any)


class ToolError(Exception):
    """Raise it in a tool to tell the language model what went wrong and what it may do instead."""


class Sequel:
    """What a tool returns in place of a result: an agent that takes the call over, or a worker's task."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Tool:
    """A function that the language model may call, with its definition.

    name: the name that the model uses. description: what the tool does, for the model.
    parameters: the JSON schema of the arguments. parse: returns the function's arguments from the model's
    JSON, or raises ToolError. call_argument: the function's parameter that gets the call, "" for none.
    timeout_s: seconds after which a run is cancelled.
    background: whether the agent talks on while the tool runs.
    keep_on_interrupt: whether a run goes on when the caller interrupts it or hangs up.
    """

    name: str
    description: str
    function: Callable[..., Any]
    parameters: Mapping[str, Any]
    parse: Callable[[str], dict[str, Any]]
    call_argument: str = ""
    timeout_s: float = TOOL_TIMEOUT_S
    background: bool = False
    keep_on_interrupt: bool = False

    @property
    def definition(self) -> dict[str, Any]:
        """The definition in OpenAI's chat format, with the arguments as JSON schema."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}

    async def run(self, call: Call, arguments: str, runner: FunctionRunner) -> str | Sequel:
        """Run the tool and return its result for the language model, or what follows in place of one.

        arguments: a JSON object. Raises ToolError if the arguments do not fit, if the tool raises it, and
        after ``timeout_s``; other exceptions of the function pass. Cancelling is that of ``runner``.
        """
        values = self.parse(arguments or "{}")
        if self.call_argument:
            values[self.call_argument] = call
        try:
            with anyio.fail_after(self.timeout_s):
                result = await runner.run(self.function, **values)
        except TimeoutError:
            raise ToolError(f"The tool {self.name} did not finish within {self.timeout_s:g} s.") from None
        return result if isinstance(result, Sequel) else _text(result)


def tool_of(
    function: Callable[..., Any],
    *,
    name: str = "",
    timeout_s: float = TOOL_TIMEOUT_S,
    background: bool = False,
    keep_on_interrupt: bool = False,
) -> Tool:
    """Return a function as a tool: its schema comes from its signature, its docstring describes it.

    A parameter annotated with ``Call`` gets the call and is hidden from the model. The descriptions of the
    others come from the docstring (Google, NumPy or Sphinx style) or from ``Annotated[..., Field(...)]``.
    Raises TypeError where the model could not call it: without docstring or annotation, with a type that has
    no JSON schema, or with positional-only or starred parameters.
    """
    called = name or getattr(function, "__name__", type(function).__name__)
    if not inspect.isroutine(function):
        raise TypeError(f"tool {called} is no function: a tool is a function or a method")
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError(f"tool {called} has yield in it: a tool returns its result")
    about = docstring_parser.parse(inspect.getdoc(function) or "")
    if not about.description:
        raise TypeError(f"tool {called} has no docstring: the model chooses a tool by its description")
    descriptions = {one.arg_name: one.description for one in about.params if one.description}
    arguments, call_argument = arguments_of(function, called, descriptions)
    return Tool(
        called,
        about.description.strip(),
        function,
        schema_of(arguments),
        partial(_parse, arguments),
        call_argument,
        timeout_s,
        background,
        keep_on_interrupt,
    )


def add_tool(tools: dict[str, Tool], made: Tool) -> None:
    """Add a tool to those of an agent or a worker. Raises ValueError if there is one of its name."""
    if made.name in tools:
        raise ValueError(f"there is a tool {made.name} already: give this one another name")
    tools[made.name] = made


def _parse(arguments: type[BaseModel], text: str) -> dict[str, Any]:
    """Return the arguments of a function from a JSON object. Raises ToolError where they do not fit."""
    try:
        given = arguments.model_validate_json(text)
    except ValidationError as error:
        raise ToolError(_mistakes(error)) from None
    return values_of(given)


def _mistakes(error: ValidationError) -> str:
    """Return what is wrong with the arguments, in words that a language model can act on."""
    parts = [
        f"{'.'.join(map(str, one['loc'])) or 'the arguments'}: {one['msg']}"
        for one in error.errors(include_url=False, include_input=False)
    ]
    return "The arguments do not fit. " + "; ".join(parts) + ". Correct them and call the tool again."


def _text(result: object) -> str:
    if result is None:
        return "Done."
    if isinstance(result, str):
        return shortened(result)
    try:
        return shortened(_ANY.dump_json(result).decode())
    except PydanticSerializationError:
        kind = type(result).__name__
        raise TypeError(
            f"it returned {kind}, which no model can read: return text, or what JSON can hold"
        ) from None


def shortened(text: str, longest: int = MAX_RESULT) -> str:
    """Return a text of at most ``longest`` characters; where the rest is cut off, its end says so."""
    return text if len(text) <= longest else text[: longest - len(CUT_NOTE)] + CUT_NOTE


def result_of(call: str, text: str) -> tuple[Entry, Key]:
    """Return the history's entry for the result of a call, and the key of the entry that it follows."""
    return Entry("tool", text, ("item", f"result-{call}"), call=call), ("call", call)


def by_name(tools: Mapping[str, Tool], name: str) -> Tool:
    """Return a tool. Raises ToolError, with the names of the others, where there is none of this name."""
    if name not in tools:
        raise ToolError(f"There is no tool {name}. The tools are: {', '.join(tools) or 'none'}.")
    return tools[name]
