"""Hooks and tools with a wrong signature are refused where they are decorated."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.call import Call
from rejoinder.agent.app.tool import tool_of


async def nothing() -> None: ...


def two(call: Call, words: str) -> None: ...


def three(call: Call, words: str, more: str) -> None: ...


def any_number(*everything: object) -> None: ...


def with_default(call: Call, words: str = "") -> None: ...


async def generator(call: Call) -> AsyncIterator[None]:
    yield


class Method:
    """Has a hook as a method."""

    def hook(self, call: Call) -> None: ...


@pytest.mark.parametrize(
    ("kind", "hook", "says"),
    [
        ("on_call", nothing, "takes no parameters, and it is called with 1 (call): write def nothing(call)"),
        (
            "on_call",
            two,
            "takes 2 parameters (call, words), and it is called with 1 (call): write def two(call)",
        ),
        ("on_turn", nothing, "takes no parameters, and it is called with 2 (call, words)"),
        ("on_turn", three, "takes 3 parameters (call, words, more), and it is called with 2 (call, words)"),
        ("on_answered_by", nothing, "is called with 2 (call, answer): write def nothing(call, answer)"),
        ("on_end", two, "takes 2 parameters"),
        ("context", Method().hook, "takes 1 parameter (call), and it is called with 2 (call, words)"),
        ("on_call", generator, "has yield in it: a hook is called once"),
        ("on_call", "prepare", "on_call needs a function of (call), not str"),
    ],
)
def test_wrong_hook_is_refused_at_decoration(kind: str, hook: Any, says: str) -> None:
    with pytest.raises(TypeError) as error:
        getattr(Agent(), kind)(hook)
    assert says in str(error.value)
    assert not callable(hook) or f"the {kind} hook" in str(error.value)


@pytest.mark.parametrize(
    ("kind", "hook"),
    [
        ("on_call", Method().hook),
        ("on_call", with_default),
        ("on_call", any_number),
        ("on_turn", two),
        ("on_turn", print),
        ("on_end", with_default),
    ],
)
def test_hook_that_can_be_called_is_taken(kind: str, hook: Callable[..., Any]) -> None:
    assert getattr(Agent(), kind)(hook) is hook


class Guest:
    """A class without a JSON schema."""


def of_guest(guest: Guest) -> str:
    """Greet a guest."""
    return ""


def of_guests(call: Call, people: int, guests: list[Guest] | None = None) -> str:
    """Greet guests."""
    return ""


def of_function(then: Callable[[], None]) -> str:
    """Call back."""
    return ""


def of_unknown(at: Missing) -> str:  # type: ignore[name-defined]  # noqa: F821
    """Book."""
    return ""


@pytest.mark.parametrize(
    ("function", "says"),
    [
        (of_guest, "tool of_guest: parameter guest is of type Guest, which has no JSON schema"),
        (of_guests, "tool of_guests: parameter guests is of type list"),
        (of_function, "tool of_function: parameter then is of type"),
        (of_unknown, "tool of_unknown: the annotation of parameter at: name 'Missing' is not defined"),
    ],
)
def test_tool_whose_parameter_has_no_schema_is_refused_by_name(
    function: Callable[..., Any], says: str
) -> None:
    with pytest.raises(TypeError) as error:
        tool_of(function)
    assert str(error.value).startswith(says)
    if "JSON" in says:
        assert "str, int, float, bool" in str(error.value) and "pydantic model" in str(error.value)


def test_names_that_pydantic_keeps_for_itself_are_names_of_parameters() -> None:
    def look(json: str, copy: int, model_config: str, _hidden: str = "x", schema: Path | None = None) -> str:
        """Look it up."""
        return ""

    made = tool_of(look)
    assert list(made.parameters["properties"]) == ["json", "copy", "model_config", "_hidden", "schema"]
    given = made.parse('{"json": "a", "copy": 3, "model_config": "b"}')
    assert given == {"json": "a", "copy": 3, "model_config": "b", "_hidden": "x", "schema": None}
