"""What integrators set on a call: from threads, and with typing mistakes."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.call import Call, CallInfo, RefusedCall
from rejoinder.agent.app.host import BROKEN
from rejoinder.agent.simulate.caller import Caller
from rejoinder.models.scripted import ScriptedLlm
from rejoinder.pipeline import Options

OWN = "Values of your own belong into call.state"


def call() -> Call[None, None]:
    return Call[None, None](CallInfo(), None, None, Options(), {}, Agent())


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("instruction", f"there is no call.instruction. Did you mean call.instructions? {OWN}"),
        ("greting", f"there is no call.greting. Did you mean call.greeting? {OWN}"),
        ("table", f"there is no call.table. Did you mean call.state? {OWN}"),
        ("hang_up", "call.hang_up is a method: call it instead of setting it"),
        ("transcript", "call.transcript can only be read"),
    ],
)
def test_unknown_attribute_is_refused_with_the_nearest_names(name: str, says: str) -> None:
    with pytest.raises(AttributeError) as error:
        setattr(call(), name, "x")
    assert str(error.value) == says


@pytest.mark.parametrize("name", ["state", "resources", "models", "fillers", "instructions", "patience"])
def test_documented_attributes_can_be_set(name: str) -> None:
    made = call()
    value = 3.0 if name == "patience" else "x"
    setattr(made, name, value)
    assert getattr(made, name) == value


def test_tools_are_a_mapping_of_tools() -> None:
    with pytest.raises(TypeError, match=r"call\.tools maps names to tools"):
        call().tools = [print]  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("instructions", None, "call.instructions needs text, and this is of type NoneType"),
        ("greeting", 3, "call.greeting needs text, and this is of type int"),
        ("options", {}, "call.options is an Options"),
    ],
)
def test_value_of_a_wrong_type_is_refused(name: str, value: object, says: str) -> None:
    with pytest.raises(TypeError, match=says):
        setattr(call(), name, value)


def test_field_of_the_options_is_refused_and_not_lost() -> None:
    made = call()
    with pytest.raises(AttributeError, match=r"set a changed copy, as in call\.options = .*idle_s=\.\.\."):
        made.options.idle_s = 5.0
    made.options = replace(made.options, idle_s=5.0)
    assert made.options.idle_s == 5.0
    with pytest.raises(AttributeError):
        made.options.idle = 5.0  # type: ignore[attr-defined]
    assert copy.deepcopy(made.options) == made.options == pickle.loads(pickle.dumps(made.options))


class Guest:
    """The state of a call."""


@asynccontextmanager
async def lifespan() -> AsyncIterator[None]:
    yield


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"state": Guest()}, "state is one Guest, but each call needs its own: give the class, state=Guest"),
        ({"lifespan": lifespan()}, "lifespan was called already"),
        ({"greeting": 3}, "greeting is of type int: it must be text"),
        ({"instructions": None}, "instructions is of type NoneType: it must be text"),
    ],
)
def test_argument_of_a_wrong_type_is_refused(arguments: dict[str, Any], says: str) -> None:
    with pytest.raises(TypeError, match=says):
        Agent(**arguments)


def test_state_that_cannot_be_made_refuses_the_call() -> None:
    def broken() -> Guest:
        raise OSError("no disk")

    caller = Caller(ScriptedLlm([]), agent=Agent(state=broken)).says("hello").hears_out()
    with pytest.raises(RefusedCall, match=BROKEN):
        caller.call(raises=False)
    with pytest.raises(OSError, match="no disk"):
        caller.call()


def test_agent_with_sets_of_models_can_be_simulated() -> None:
    agent: Agent[None, None] = Agent(models={"dutch": {"stt": "whisper:base@nl"}})

    @agent.on_call
    def choose(call: Call) -> None:
        call.models = "dutch"

    assert Caller(ScriptedLlm(["Hallo."]), agent=agent).says("hallo").hears_out().call().heard == ["Hallo."]


def test_functions_in_threads_change_the_call_on_its_loop() -> None:
    """asyncio's objects may be used by the loop's thread only; the virtual loop checks that."""
    agent: Agent[None, None] = Agent("Be brief.", greeting="Hello.")
    threads: list[str] = []

    @agent.on_call
    def prepare(call: Call) -> None:
        threads.append(threading.current_thread().name)
        call.greeting = "Good day."

    @agent.on_turn
    def note(call: Call, words: str) -> None:
        threads.append(threading.current_thread().name)
        call.instructions = f"Known: {words}."
        if words == "goodbye":
            call.say("Until tomorrow.")

    @agent.on_end
    def end(call: Call) -> None:
        threads.append(threading.current_thread().name)

    held = Caller(ScriptedLlm(["One.", "Two.", "Three."]), agent=agent).hears_out().says("hello").hears_out()
    result = held.says("again").hears_out().says("goodbye").hears_out().call()
    assert result.heard[0] == "Good day." and "Until tomorrow." in result.heard
    assert result.prompts[-1][0]["content"] == "Known: again."
    assert len(threads) == 5 and not [name for name in threads if "Main" in name]
