"""The requests of ``tools.toml``, and the rules that judge what a language model calls."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from rejoinder.agent.bench.answers.questions import HALVES, Half
from rejoinder.agent.bench.answers.rules import Normalise
from rejoinder.pipeline import ToolCall

ANYWHERE = "*"
"""The beginning of a value that need only be contained in what the model writes."""


class Verdict(StrEnum):
    """How an answer to a request was judged.

    UNCALLED: no call, or a second one, where one is needed. NEEDLESS: a call where none is needed. SILENT:
    neither words nor a call.
    """

    RIGHT = "right"
    UNCALLED = "not called"
    NEEDLESS = "called without need"
    WRONG_TOOL = "another tool"
    WRONG_ARGUMENTS = "wrong arguments"
    SILENT = "no answer"


@dataclass(frozen=True, slots=True)
class ToolRequest:
    """What a caller says, and what the agent has to call.

    call: name of the tool, "" if the agent has to answer in words.
    arguments: the right values of each argument.
    """

    kind: str
    half: Half
    ask: str
    call: str = ""
    arguments: Mapping[str, Sequence[str]] = field(default_factory=dict)


def read_tools(file: Path | None = None) -> tuple[list[dict[str, Any]], list[ToolRequest]]:
    """Return the tools in OpenAI's chat format, and the requests of a TOML file.

    The default is the set of this package.
    """
    text = (file or Path(__file__).with_name("tools.toml")).read_text(encoding="utf-8")
    found = tomllib.loads(text)
    tools = [_function(**entry) for entry in found.pop("tool")]
    return tools, [
        ToolRequest(
            kind,
            HALVES[number % len(HALVES)],
            entry["ask"],
            entry.get("call", ""),
            {name: tuple(values) for name, values in entry.get("arguments", {}).items()},
        )
        for kind, entries in found.items()
        for number, entry in enumerate(entries)
    ]


def judge(request: ToolRequest, text: str, calls: Sequence[ToolCall], normalise: Normalise) -> Verdict:
    """Return whether an answer is right: the calls that the request needs, or words if it needs none.

    text: the words of the answer; beside a call they do not matter.
    """
    if not request.call:
        if calls:
            return Verdict.NEEDLESS
        return Verdict.RIGHT if text.strip() else Verdict.SILENT
    if not calls and not text.strip():
        return Verdict.SILENT
    if len(calls) != 1:
        return Verdict.UNCALLED
    (call,) = calls
    if call.name != request.call:
        return Verdict.WRONG_TOOL
    return Verdict.RIGHT if _fits(request, call.arguments, normalise) else Verdict.WRONG_ARGUMENTS


def _fits(request: ToolRequest, arguments: str, normalise: Normalise) -> bool:
    given = json.loads(arguments)
    if given.keys() != request.arguments.keys():
        return False
    return all(_is_one_of(given[name], values, normalise) for name, values in request.arguments.items())


def _is_one_of(value: object, right: Sequence[str], normalise: Normalise) -> bool:
    """Return whether a value is one of the right ones, or contains one that begins with ``ANYWHERE``."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return False
    whole = isinstance(value, float) and value.is_integer()
    written = normalise(str(int(value) if whole else value))
    for one in right:
        wanted = normalise(one.removeprefix(ANYWHERE))
        if written == wanted or (one.startswith(ANYWHERE) and f" {wanted} " in f" {written} "):
            return True
    return False


def _function(name: str, description: str, parameters: dict[str, Any]) -> dict[str, Any]:
    schema = {"type": "object", "properties": parameters, "required": list(parameters)}
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}
