"""Holds the calls of an evaluation, one after the other."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.call import CallInfo, RefusedCall
from rejoinder.agent.app.host import AgentHost
from rejoinder.agent.config import ConfigError
from rejoinder.agent.mistakes import nearest
from rejoinder.agent.simulate import virtual_clock
from rejoinder.agent.simulate.actor import NothingHeard
from rejoinder.agent.simulate.caller import Caller
from rejoinder.agent.simulate.evaluation.checks import mistakes_of
from rejoinder.agent.simulate.evaluation.plan import EvaluationPlan, PlannedCall
from rejoinder.agent.simulate.judging import judge
from rejoinder.agent.simulate.language_model import language_model
from rejoinder.agent.simulate.story import told
from rejoinder.models.scripted import ScriptedStt, ScriptedTts, ScriptedVad
from rejoinder.pipeline import Llm, Models, Options, PipelineError


@dataclass(slots=True)
class Repetition:
    """One repetition of a call.

    mistakes: empty if it passed. story: what was said and done. seconds: the length of the call.
    """

    mistakes: list[str] = field(default_factory=list)
    story: str = ""
    seconds: float = 0.0
    latency_ms: list[int] = field(default_factory=list)


@dataclass(slots=True)
class CallOutcome:
    """A call and its repetitions. threshold: share of them that must pass."""

    name: str
    threshold: float
    repetitions: list[Repetition] = field(default_factory=list)

    @property
    def passed(self) -> int:
        """The number of repetitions that passed."""
        return sum(not one.mistakes for one in self.repetitions)

    @property
    def rate(self) -> float:
        """The share of repetitions that passed, 0.0 if there are none."""
        return self.passed / len(self.repetitions) if self.repetitions else 0.0

    @property
    def good(self) -> bool:
        """Whether enough repetitions passed."""
        return self.rate >= self.threshold

    @property
    def latency_ms(self) -> int:
        """The median latency of all answers in milliseconds, 0 without any."""
        found = [ms for one in self.repetitions for ms in one.latency_ms]
        return round(median(found)) if found else 0

    def as_dict(self) -> dict[str, Any]:
        """Return all of it, for JSON."""
        return {**asdict(self), "passed": self.passed, "rate": self.rate, "good": self.good}


def scripted_caller(caller: Caller, planned: PlannedCall, greeted: bool) -> Caller:
    """Add a planned call to a caller. greeted: whether the agent begins with a greeting."""
    if greeted:
        caller.hears_out()
    steps = planned.script
    for step, after in zip(steps, [*steps[1:], None], strict=True):
        goes_on = after is not None and after.pauses is not None
        if step.says:
            caller.says(step.says)
        elif step.interrupts:
            caller.interrupts(step.interrupts, step.after or 1.0)
        elif step.types:
            caller.types(step.types)
        elif step.backchannels:
            caller.backchannels(step.backchannels)
        elif step.coughs:
            caller.coughs(step.coughs)
        elif step.pauses:
            caller.pauses(step.pauses)
            continue
        elif step.waits:
            caller.waits(step.waits)
            continue
        if not goes_on and not (after and (after.interrupts or after.backchannels or after.coughs)):
            caller.hears_out()
    return caller


async def evaluate(
    plan: EvaluationPlan, agent: Agent[Any, Any], report: Callable[[str, Repetition], None]
) -> list[CallOutcome]:
    """Hold each call as often as the plan says, and return what came of it.

    It must run in virtual time (``virtual_clock.run``). report: called with the name of the call after each
    repetition. Raises ModelError if a model cannot be loaded or judges badly, and ConfigError if the language
    model cannot call the agent's tools. Cancelling ends the call in progress.
    """
    async with AsyncExitStack() as stack:
        llm = await stack.enter_async_context(language_model(plan.llm))
        judging = await stack.enter_async_context(language_model(plan.judge)) if plan.judge else None
        AgentHost(agent).check(Models(ScriptedVad(), ScriptedStt([]), llm, ScriptedTts()))
        outcomes = [
            CallOutcome(call.name, plan.threshold if call.threshold is None else call.threshold)
            for call in plan.calls
        ]
        for planned, outcome in zip(plan.calls, outcomes, strict=True):
            for _ in range(plan.repeat):
                virtual_clock.restart()
                outcome.repetitions.append(await _held(planned, agent, llm, judging))
                report(planned.name, outcome.repetitions[-1])
    return outcomes


def check_tools(plan: EvaluationPlan, agent: Agent[Any, Any]) -> None:
    """Raise ConfigError if a call expects a tool that the agent does not have.

    The tools of MCP servers are not known before they are connected: with such a server, all names pass.
    """
    known = [tool for one in agent.reachable for tool in one.tools]
    if any(one.mcp for one in agent.reachable):
        return
    for call in plan.calls:
        for name in [*(name for tool in call.expect.tools for name in tool), *call.expect.no_tools]:
            if name not in known:
                near = nearest(name, known)
                hint = f"did you mean {near}?" if near else f"the tools are: {', '.join(known) or 'none'}"
                raise ConfigError(f"call {call.name!r}: the agent has no tool {name!r}; {hint}")


async def _held(planned: PlannedCall, agent: Agent[Any, Any], llm: Llm, judging: Llm | None) -> Repetition:
    info = CallInfo("", "simulation", planned.caller, planned.called, {}, planned.query, planned.metadata)
    caller = Caller(llm, Options(), agent=agent, info=info, real_time=True)
    call = scripted_caller(caller, planned, bool(agent.greeting)).prepared()
    mistakes: list[str] = []
    try:
        await call.converse()
    except RefusedCall as refused:
        return Repetition(list(map(str, call.failures)) or [f"the agent refused the call: {refused}"])
    except (NothingHeard, PipelineError) as error:
        mistakes.append(str(error).splitlines()[0])
    if not call.talk.opened:
        return Repetition(mistakes)
    mistakes += mistakes_of(call, planned.expect)
    if planned.expect.judge and judging:
        verdict = await judge(judging, call.transcript, planned.expect.judge)
        if not verdict:
            mistakes.append(f"judged no: {planned.expect.judge} ({verdict.reason})")
    return Repetition(mistakes, told(call), round(call.ended, 2), call.latency_ms)
