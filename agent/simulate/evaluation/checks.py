"""Checks of a call that was held against what is expected of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from rejoinder.agent.simulate.call import Call
from rejoinder.agent.simulate.evaluation.plan import Expected
from rejoinder.agent.simulate.tool_use import ToolUse
from rejoinder.pipeline import ReplyDone


def mistakes_of(call: Call, expected: Expected) -> list[str]:
    """Return what is wrong with a call, apart from the judge's verdict; empty if nothing is."""
    used = call.tools_called
    wrong: list[str] = []
    for tool in expected.tools:
        for name, arguments in tool.items():
            if not any(use.name == name and fits(use.arguments, arguments or {}) for use in used):
                wrong.append(f"{ToolUse(name, arguments or {})} was not called; called: {_called(used)}")
    wrong += [f"{use} was called" for use in used if use.name in expected.no_tools]
    wrong += [str(failure) for failure in call.failures]
    heard = plain(" ".join(call.heard))
    wrong += [f"{words!r} was not said" for words in expected.says if plain(words) not in heard]
    wrong += [f"{words!r} was said" for words in expected.never_says if plain(words) in heard]
    has_it = call.talk.call.agent.name
    if expected.agent and has_it != expected.agent:
        wrong.append(f"{has_it} has the call at the end, not {expected.agent}")
    wrong += [f"a reply failed: {done.error}" for done in call.talk.of(ReplyDone) if done.status == "failed"]
    return wrong


def fits(arguments: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    """Return whether arguments are there, with the wanted values; text without case, with wildcards."""
    return all(name in arguments and _equal(arguments[name], value) for name, value in wanted.items())


def _equal(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, Mapping) and isinstance(value, Mapping):
        return fits(value, wanted)
    if isinstance(wanted, bool) or isinstance(value, bool):
        return value is wanted
    if isinstance(wanted, str):
        return fnmatchcase(str(value).casefold(), wanted.casefold())
    if hasattr(wanted, "isoformat"):  # YAML reads 2026-11-27 as a date, and the model wrote text
        return str(value).replace("T", " ").startswith(str(wanted))
    return bool(value == wanted)


def plain(text: str) -> str:
    """Return the words of a text, between spaces, without case and punctuation."""
    words = re.findall(r"[^\W_]+", text.casefold())
    return f" {' '.join(words)} "


def _called(uses: list[ToolUse]) -> str:
    return ", ".join(map(str, uses)) or "no tools"
