"""A function becomes a tool: its schema, its arguments, its result and its errors."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from rejoinder.agent.app.call import Call, CallInfo
from rejoinder.agent.app.functions.runner import FunctionRunner
from rejoinder.agent.app.tool import CUT_NOTE, MAX_RESULT, ToolError, by_name, tool_of


def run(function: Callable[..., Any], arguments: object, **options: Any) -> str:
    """Return what the model gets when it calls a function as a tool."""

    async def once() -> str:
        text = arguments if isinstance(arguments, str) else json.dumps(arguments)
        call = Call(CallInfo(id="call-1"))
        return await tool_of(function, **options).run(call, text, FunctionRunner(1))

    return asyncio.run(once())


async def book(
    call: Call, people: Annotated[int, Field(ge=1, le=12)], at: datetime, where: Literal["in", "out"] = "in"
) -> str:
    """Book a table.

    Args:
        people: how many guests come
        at: when they come
    """
    return f"{call.info.id}: {people} at {at:%H:%M}, {where}"


def test_schema_comes_from_the_signature_and_the_docstring() -> None:
    definition = tool_of(book).definition["function"]
    parameters = definition["parameters"]
    assert definition["name"] == "book" and definition["description"] == "Book a table."
    assert set(parameters["properties"]) == {"people", "at", "where"}, "the call is hidden"
    assert parameters["properties"]["people"] == {
        "description": "how many guests come",
        "type": "integer",
        "minimum": 1,
        "maximum": 12,
    }
    assert parameters["properties"]["at"]["format"] == "date-time"
    assert parameters["required"] == ["people", "at"] and parameters["additionalProperties"] is False


def test_arguments_are_converted_to_their_types() -> None:
    assert run(book, {"people": 4, "at": "2026-11-24T19:30:00"}) == "call-1: 4 at 19:30, in"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"people": 40, "at": "2026-11-24T19:30:00"}, "people: Input should be less than or equal to 12"),
        ({"people": 4}, "at: Field required"),
        ({"people": 4, "at": "tomorrow"}, "at: Input should be a valid datetime"),
        ({"people": 4, "at": "2026-11-24", "wine": "red"}, "wine: Extra inputs are not permitted"),
        ("{", "the arguments: Invalid JSON"),
    ],
)
def test_wrong_arguments_are_an_error_that_the_model_can_mend(arguments: object, says: str) -> None:
    with pytest.raises(ToolError) as error:
        run(book, arguments)
    assert says in str(error.value) and "call the tool again" in str(error.value)


def test_synchronous_function_runs_in_a_thread() -> None:
    went_on = threading.Event()

    def slow() -> dict[str, int]:
        """Wait until the loop has gone on."""
        went_on.wait(20.0)
        return {"free": 3}

    async def beside() -> tuple[str, int]:
        call = Call(CallInfo())
        running = asyncio.create_task(tool_of(slow).run(call, "{}", FunctionRunner(1)))
        turns = 0
        while not running.done():
            await asyncio.sleep(0.005)
            turns += 1
            if turns == 3:
                went_on.set()
        return running.result(), turns

    text, turns = asyncio.run(beside())
    assert text == '{"free":3}' and turns >= 3, "the loop went on"


class Table(BaseModel):
    """A table of the restaurant."""

    number: int
    at: datetime


def test_results_are_text_or_json() -> None:
    def table() -> Table:
        """Return a table."""
        return Table(number=3, at=datetime(2026, 11, 24, 19, 30))

    def nothing() -> None:
        """Do it."""

    def much() -> str:
        """Return much."""
        return "x" * (MAX_RESULT + 1)

    assert json.loads(run(table, {})) == {"number": 3, "at": "2026-11-24T19:30:00"}
    assert run(nothing, "") == "Done."
    assert len(run(much, {})) == MAX_RESULT and run(much, {}).endswith(CUT_NOTE)


def test_tool_that_takes_too_long_is_cancelled() -> None:
    cancelled = []

    async def slow() -> None:
        """Wait for ever."""
        try:
            await asyncio.sleep(60.0)
        except asyncio.CancelledError:
            cancelled.append(True)
            raise

    with pytest.raises(ToolError, match=r"did not finish within 0\.01 s"):
        run(slow, {}, timeout_s=0.01)
    assert cancelled


def test_exception_of_the_function_is_not_for_the_model() -> None:
    def broken() -> None:
        """Fail."""
        raise ValueError("password=hunter2")

    with pytest.raises(ValueError, match="hunter2"):
        run(broken, {})


def test_result_that_no_model_can_read_is_named() -> None:
    def opened() -> object:
        """Open it."""
        return object()

    with pytest.raises(TypeError, match="it returned object, which no model can read: return text"):
        run(opened, {})


def test_functions_that_the_model_could_not_call_are_refused() -> None:
    def silent(one: int) -> None:
        pass

    def untyped(one) -> None:  # type: ignore[no-untyped-def]
        """Do it."""

    def starred(*many: int) -> None:
        """Do it."""

    def many() -> Iterator[int]:
        """Count."""
        yield 1

    wrong: list[tuple[Any, str]] = [
        (silent, "no docstring"),
        (untyped, "no type"),
        (starred, "ordinary parameter"),
        (many, "has yield in it"),
        (Table(number=1, at=datetime(2026, 11, 24)), "is no function"),
    ]
    for function, says in wrong:
        with pytest.raises(TypeError, match=says):
            tool_of(function)


def test_unknown_tool_is_an_error_that_lists_the_others() -> None:
    with pytest.raises(ToolError, match=r"There is no tool pay\. The tools are: book\."):
        by_name({"book": tool_of(book)}, "pay")
