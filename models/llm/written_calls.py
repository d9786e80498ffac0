"""Cut tool calls out of a model's text, for models that write each call as a JSON object."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any

from rejoinder.models.llm.tool_calls import new_id
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.interfaces import ToolCall

MAX_WRITTEN_CHARACTERS = 8_000
"""Most characters of one call."""
FENCE = "```"
"""The mark of Markdown before and after code."""
WRITTEN_TAGS = ("<tool_call>", "</tool_call>", "<tools>", "</tools>")
"""Tags around calls. Qwen2.5-Coder writes none, or those around the tools in its prompt."""
BEGINNINGS = ("{", FENCE, *WRITTEN_TAGS)
"""What may begin a call."""
AROUND = re.compile(rf"\A(?:{FENCE}\w*|{'|'.join(WRITTEN_TAGS)}|\s+)*")
"""What stands before a call: fences with the name of a language, tags and blanks."""
TAG = re.compile("|".join(WRITTEN_TAGS))
"""One of ``WRITTEN_TAGS``."""
OBJECT = re.compile(r'\{[\s{]*(?:["}]|$)')
"""The beginning of a JSON object. Other text in braces is not held back."""
WRITTEN_CALL = re.compile(r'\{[\s{]*"(?:n|na|nam|name"?|name"\s*:.*)$', re.DOTALL)
"""The beginning of a call, which is an error at the end of an answer."""
STRING = r'"(?:\\.|[^"\\])*"'
"""A string in JSON."""
CALL_PARTS = re.compile(rf'{STRING}|[{{}}"]', re.DOTALL)
"""Strings and braces; a quotation mark alone begins a string without an end."""
DOUBLED = re.compile(rf"({STRING})|(?:\{{\{{)|(?:\}}\}})", re.DOTALL)
"""Strings, and doubled braces outside of strings."""


class WrittenCalls:
    """Separates the text of one answer from the tool calls in it.

    Text passes at once. From a brace, a tag or a fence on, text is held back until it is certain whether it
    is a call: ``{"name": ..., "arguments": {...}}``.

    names: the tools that may be called. model: name of the model in errors.
    """

    def __init__(self, names: Iterable[str], model: str) -> None:
        self._names = {_folded(name): name for name in reversed(list(names))}
        self._model = model
        self._held = ""
        self._blanks = ""  # blanks before the held text, which are dropped if a call follows
        self._begun = False  # whether there was text: blanks before it are dropped
        self._cut = True  # whether there was no text since the last call: blanks at the end are dropped
        self._fenced = False  # whether the fence that began before the last call is still open

    @property
    def in_object(self) -> bool:
        """Whether the next piece continues a JSON object."""
        return "{" in self._held

    def take(self, piece: str) -> list[str | ToolCall]:
        """Return the text and the calls that the next piece of the answer completes.

        Raises ModelError for a call of an unknown tool, for a call without valid arguments, and if more than
        ``MAX_WRITTEN_CHARACTERS`` are held back.
        """
        self._held += piece
        out: list[str | ToolCall] = []
        while self._held and self._advance(out):
            pass
        if len(self._held) + len(self._blanks) > MAX_WRITTEN_CHARACTERS:
            raise ModelError(
                self._model,
                f"it began a call of more than {MAX_WRITTEN_CHARACTERS} characters, the most for a call",
            )
        return _joined(out)

    def end(self) -> list[str | ToolCall]:
        """Return the text that was held back at the end. Raises ModelError if it is half a call."""
        if WRITTEN_CALL.search(self._held):
            raise ModelError(self._model, f"its answer ends within a call: {self._held[:200]}")
        out: list[str | ToolCall] = []
        held, self._held = self._held, ""
        self._say(out, self._without_marks(held))
        if not self._cut:
            out.append(self._blanks)
        self._blanks = ""
        return _joined(out)

    def _advance(self, out: list[str | ToolCall]) -> bool:
        """Move text or a call from the held text to ``out``. Return False if more text is needed."""
        if begins := _beginning(self._held):
            self._say(out, self._held[:begins])
            self._held = self._held[begins:]
            return True
        rest = AROUND.sub("", self._held, count=1)
        before = self._held[: len(self._held) - len(rest)]
        if not rest or (rest[0] != "{" and _may_begin(rest)):
            return False
        if not OBJECT.match(rest):
            end = 1 if rest[0] == "{" else 0
            self._say(out, self._without_marks(before) + rest[:end])
            self._held = rest[end:]
            return bool(before) or end > 0
        if not (end := _closing(rest)):
            return False
        call = self._call(rest[:end])
        self._held = rest[end:]
        if call is None:
            self._say(out, self._without_marks(before) + rest[:end])
        else:
            self._fenced = FENCE in (before.replace(FENCE, "", 1) if self._fenced else before)
            self._blanks, self._cut = "", True
            out.append(call)
        return True

    def _say(self, out: list[str | ToolCall], text: str) -> None:
        text = self._blanks + text
        said = text.rstrip()
        self._blanks = text[len(said) :]
        if said:
            out.append(said if self._begun else said.lstrip())
            self._begun, self._cut = True, False

    def _without_marks(self, around: str) -> str:
        """Return text around an object that is no call: without tags, and without the fence of a call."""
        around = TAG.sub("", around)
        if self._fenced and around.lstrip().startswith(FENCE):
            self._fenced = False
            around = around.replace(FENCE, "", 1)
        return around

    def _call(self, text: str) -> ToolCall | None:
        """Return the call that an object is, or None if it is none."""
        found = _parsed(text)
        if found is None:
            if WRITTEN_CALL.match(text):
                raise ModelError(self._model, f"it wrote a call that is no JSON: {text[:200]}")
            return None
        written = found.get("name")
        given = found.get("arguments", found.get("parameters", ...))
        name = self._names.get(_folded(written)) if isinstance(written, str) else None
        if not isinstance(written, str) or (name is None and given is ...):
            return None
        if name is None:
            there = ", ".join(self._names.values())
            reason = f"it called {written[:100]!r}, which is no tool; there are: {there}"
            raise ModelError(self._model, reason)
        if isinstance(given, str) and given.strip():
            given = _parsed(given)
        elif given in (..., None) or given == "":
            given = {}
        if not isinstance(given, dict):
            raise ModelError(self._model, f"the arguments of {name} are no JSON object: {text[:200]}")
        return ToolCall(new_id(), name, json.dumps(given))


def _joined(out: list[str | ToolCall]) -> list[str | ToolCall]:
    """Return the items with neighbouring texts joined, and without empty ones."""
    joined: list[str | ToolCall] = []
    for item in out:
        if isinstance(item, str) and joined and isinstance(joined[-1], str):
            joined[-1] += item
        elif item:
            joined.append(item)
    return joined


def _folded(name: str) -> str:
    return re.sub(r"[\s_-]", "", name).casefold()


def _may_begin(text: str) -> bool:
    return any(text.startswith(one) or one.startswith(text) for one in BEGINNINGS)


def _beginning(text: str) -> int:
    """Return where the first thing begins that may be a call or a part of one; the length if none does."""
    places = (at for at, character in enumerate(text) if character in "{`<")
    return next((at for at in places if _may_begin(text[at:])), len(text))


def _closing(text: str) -> int:
    """Return the index after the brace that closes the first one, or 0 if there is none yet."""
    depth = 0
    for part in CALL_PARTS.finditer(text):
        match part[0]:
            case "{":
                depth += 1
            case "}":
                depth -= 1
                if not depth:
                    return part.end()
            case '"':
                return 0
    return 0


def _parsed(text: str) -> dict[str, Any] | None:
    """Return a JSON object, also one with doubled braces, or None if the text is none."""
    for one in (text, text[1:-1], DOUBLED.sub(lambda found: found[1] or found[0][0], text)):
        try:
            found = json.loads(one, strict=False, parse_constant=_refuse)
        except (ValueError, RecursionError):
            continue
        if isinstance(found, dict):
            return found
    return None


def _refuse(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON")
