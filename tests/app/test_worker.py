"""A worker does what takes long, and the agent talks on with the caller; in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.call import Call, CallInfo
from rejoinder.agent.app.host import AgentHost
from rejoinder.agent.app.worker import Worker
from rejoinder.agent.simulate.simulated import simulate
from rejoinder.agent.simulate.virtual_clock import run
from rejoinder.models.scripted import ScriptedLlm
from rejoinder.pipeline import ModelError, Options, ToolCall

ASK = '@ask_colleague {"task": "move the booking of Anna to eight"}'


def moving(seconds: float = 6.0, **options: Any) -> tuple[Agent, list[str]]:
    """Return an agent whose worker moves bookings, and what it has moved."""
    worker, moved = Worker("moves bookings", **options), list[str]()

    @worker.tool
    async def move(call: Call, name: str) -> str:
        """Move a booking."""
        await asyncio.sleep(seconds)
        moved.append(name)
        return "moved to eight"

    return Agent("Be brief.", fillers=(), delegate=worker), moved


def test_the_agent_talks_on_and_reports_when_the_work_is_done() -> None:
    agent, moved = moving()
    heard: list[str] = []

    async def call() -> None:
        worker = ('@move {"name": "Anna"}', "Anna's booking is at eight now.")
        replies = (ASK, "I have asked. Anything else?", "We close at ten.", "Your booking is at eight.")
        async with simulate(agent, *replies, worker=worker) as caller:
            await caller.says("Can you move my booking to eight?")
            await caller.expects("I have asked", within=2.0)
            await caller.says("How long are you open?")
            await caller.expects("We close at ten", within=2.0)
            await caller.expects("at eight")
            heard.extend(caller.heard)

    run(call())
    assert moved == ["Anna"] and len(heard) == 3


def test_the_worker_knows_what_was_said() -> None:
    agent, _ = moving(0.1)
    works = ScriptedLlm(['@move {"name": "Anna"}', "Done."])
    host = AgentHost(agent)
    host.llms[""] = works
    call = host.new_call(CallInfo(), Options())

    class Said:
        def transcript(self) -> list[dict[str, str]]:
            return [{"role": "user", "content": "I am Anna."}, {"role": "assistant", "content": "Hello."}]

    async def ask() -> str:
        call.connect(Said())  # type: ignore[arg-type]  # a worker needs nothing else of the line
        asked = ToolCall("1", "ask_colleague", '{"task": "move it"}')
        return (await host.run_tool(call, asked)).text

    assert asyncio.run(ask()) == "Done."
    first = works.prompts[0][-1]["content"]
    assert "Caller: I am Anna.\nAgent: Hello." in first and first.endswith("asks you for this: move it")
    assert works.prompts[1][-1]["content"] == "moved to eight"


def asked(agent: Agent, llm: object) -> str:
    host = AgentHost(agent)
    host.llms[""] = llm  # type: ignore[assignment]
    call = host.new_call(CallInfo(), Options())

    async def ask() -> str:
        return (await host.run_tool(call, ToolCall("1", "ask_colleague", '{"task": "move it"}'))).text

    return run(ask())


def test_a_worker_that_takes_too_long_is_stopped() -> None:
    agent, moved = moving(60.0, timeout_s=5.0)
    assert asked(agent, ScriptedLlm(['@move {"name": "Anna"}'])) == "ask_colleague did not finish within 5 s."
    assert not moved


class Broken(ScriptedLlm):
    """A model that fails."""

    def _line(self, messages: object) -> str:
        raise ModelError("language model", "it is down")


def test_a_model_that_fails_is_a_failed_tool(caplog: pytest.LogCaptureFixture) -> None:
    assert asked(moving()[0], Broken(["x"])).startswith("The tool failed")
    assert "the tool ask_colleague failed" in caplog.text


def test_only_the_agent_hands_a_call_over() -> None:
    other, worker = Agent("Other."), Worker("asks others")
    agent = Agent("Be brief.", agents=[other], delegate=worker)

    @worker.tool
    async def hand_over() -> Agent:
        """Hand the call over."""
        return other

    llm = ScriptedLlm(["@hand_over {}", "It is not possible."])
    assert asked(agent, llm) == "It is not possible."
    assert "only the agent itself" in llm.prompts[1][-1]["content"]


def test_a_worker_goes_on_after_the_call() -> None:
    agent, moved = moving(4.0)

    async def call() -> None:
        async with simulate(
            agent, ASK, "I have asked.", worker=('@move {"name": "Anna"}', "Done.")
        ) as caller:
            await caller.says("Can you move my booking to eight?")
            await caller.expects("I have asked")

    run(call())
    assert moved == ["Anna"]


@pytest.mark.parametrize("start", range(0, 60, 4))
def test_words_at_any_moment_ask_it_once(start: int) -> None:
    """The caller speaks at each moment while the worker works: the work is done once, and reported."""
    agent, moved = moving(2.0)

    async def call() -> None:
        works = ('@move {"name": "Anna"}', "It is at eight.")
        replies = (ASK, "I have asked.", "Until ten. It is at eight.", "It is at eight.")
        async with simulate(agent, *replies, worker=works) as caller:
            await caller.says("Can you move my booking to eight?")
            await caller.expects(tool="ask_colleague")
            await caller.waits(start / 20)
            await caller.says("And how long are you open tonight?")
            await caller.expects("at eight")
            await caller.waits(10.0)
            assert [name for name, _ in caller.called] == ["ask_colleague"]

    run(call())
    assert moved == ["Anna"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: Worker("moves", llm=3), "Worker's llm needs text"),  # type: ignore[arg-type]
        (lambda: Worker(""), "say what the worker can do"),
        (lambda: Agent(delegate="medium"), "delegate needs a Worker"),  # type: ignore[arg-type]
    ],
)
def test_wrong_workers_are_refused(wrong: Any, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        wrong()


def test_the_models_of_workers_are_loaded_once() -> None:
    second = Agent(delegate=Worker("a", llm="medium"))
    first = Agent(delegate=Worker("b", llm="medium"), agents=[second])
    assert AgentHost(first).worker_llms == ["medium"] and AgentHost(Agent()).worker_llms == []
