"""The pytest plugin, which pytest loads by itself: the fixtures ``simulated_call`` and ``judge``."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:  # loaded with pytest in every project of this environment: imports nothing until it is used
    from rejoinder.agent.app.agent import Agent
    from rejoinder.agent.simulate.call import Call
    from rejoinder.agent.simulate.caller import Caller
    from rejoinder.agent.simulate.judging import Verdict
    from rejoinder.pipeline import Llm

JUDGE_VARIABLE = "REJOINDER_JUDGE"
"""The environment variable with the language model of ``judge``, if ``--judge`` is not given."""
CALLS_OF_TEST: pytest.StashKey[list[Any]] = pytest.StashKey()
"""The simulated calls of a test, which a failure reports."""
TEST_FAILED: pytest.StashKey[bool] = pytest.StashKey()
"""Whether a test has failed."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option ``--judge``."""
    group = parser.getgroup("rejoinder", "agents under simulated callers")
    group.addoption(
        "--judge",
        default=os.environ.get(JUDGE_VARIABLE, ""),
        metavar="SPEC",
        help=f"language model that judges, such as openai:http://HOST/v1#MODEL (or {JUDGE_VARIABLE})",
    )


@pytest.fixture
def simulated_call(request: pytest.FixtureRequest) -> Iterator[Callable[..., Caller]]:
    """Return a function that makes a caller for an agent: ``simulated_call(agent, replies=["Hello."])``.

    replies: of a scripted language model, with calls such as ``@book {"people": 4}``. llm: instead of them, a
    language model, any object with the pipeline's interface. The other arguments are those of ``Caller``. The
    caller first hears the agent's greeting out. If the test fails, its report shows what was said and done in
    each of its calls. A test that makes a caller and holds no call fails.
    """
    from rejoinder.agent.app.agent import Agent
    from rejoinder.agent.simulate.caller import Caller
    from rejoinder.models.scripted import ScriptedLlm

    calls: list[Call] = []
    made: list[Caller] = []
    request.node.stash[CALLS_OF_TEST] = calls

    class NotedCaller(Caller):
        """A caller whose calls the report of the test shows."""

        def prepared(self) -> Call:
            """Return the call before it begins, and note it."""
            calls.append(super().prepared())
            return calls[-1]

    def make(agent: Agent, replies: Sequence[str] = (), llm: Llm | None = None, **more: Any) -> Caller:
        if not isinstance(agent, Agent):
            raise TypeError(f"simulated_call needs an Agent, and this is of type {type(agent).__name__}")
        if isinstance(replies, str):
            raise TypeError(f"replies is a text: it must be a list of texts, such as [{replies!r}]")
        made.append(NotedCaller(llm or ScriptedLlm(replies), agent=agent, **more))
        return made[-1].hears_out() if agent.greeting else made[-1]

    yield make
    if made and not calls and not request.node.stash.get(TEST_FAILED, False):
        pytest.fail("simulated_call made a caller that held no call: end its script with .call()", False)


@pytest.fixture
def judge(request: pytest.FixtureRequest) -> Callable[[Call, str], Verdict]:
    """Return a function that asks a language model questions: ``assert judge(call, "Polite?")``.

    The answer is true for yes, and has the ``reason``. The test is skipped where no model is configured, by
    ``--judge`` or REJOINDER_JUDGE.
    """
    spec = request.config.getoption("--judge")
    if not spec:
        pytest.skip(f"no language model judges: give one by --judge or {JUDGE_VARIABLE}")
    from rejoinder.agent.simulate.judging import judge as ask
    from rejoinder.agent.simulate.language_model import language_model

    async def answer(call: Call, question: str) -> Verdict:
        async with language_model(spec) as llm:
            return await ask(llm, call.transcript, question)

    return lambda call, question: asyncio.run(answer(call, question))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add what was said and done in the simulated calls to the report of a test that failed."""
    report = yield
    if report.when == "call" and report.failed:
        item.stash[TEST_FAILED] = True
        calls = item.stash[CALLS_OF_TEST] if CALLS_OF_TEST in item.stash else []
        for number, held in enumerate(calls, 1):
            if held.talk.opened:
                from rejoinder.agent.simulate.story import told

                report.sections.append((f"simulated call {number}", told(held)))
    return report
