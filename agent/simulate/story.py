"""A simulated call as a YAML file: what the caller says, and what the agent has to do.

replies:
  - '@book {"people": 4}'
  - It is booked.
call:
  - says: A table for four.
  - expects: {tool: book, arguments: {people: 4}, within: 4}
  - expects: booked
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.simulate import virtual_clock
from rejoinder.agent.simulate.simulated import WITHIN_SECONDS, NotExpected, SimulatedCaller, simulate
from rejoinder.pipeline import PipelineError


class WrongStory(PipelineError):
    """The file cannot be read as a call. The message says where, and why."""


class Expectation(BaseModel):
    """What the agent has to do: say some words, call a tool, or end the call; see ``SimulatedCaller``.

    arguments: those of the tool that have to have these values.
    """

    model_config = ConfigDict(extra="forbid")

    words: str = ""
    tool: str = ""
    arguments: dict[str, Any] = Field(default_factory=dict)
    over: bool = False
    within: float = Field(WITHIN_SECONDS, gt=0.0)

    @model_validator(mode="before")
    @classmethod
    def _from_words(cls, given: Any) -> Any:
        return {"words": given} if isinstance(given, str) else given


class StoryStep(BaseModel):
    """One step of a call: exactly one of the three."""

    model_config = ConfigDict(extra="forbid")

    says: str | None = None
    waits: float | None = Field(None, ge=0.0)
    expects: Expectation | None = None

    @model_validator(mode="after")
    def _check_one(self) -> StoryStep:
        if sum(one is not None for one in (self.says, self.waits, self.expects)) != 1:
            raise ValueError("write one of says, waits and expects")
        return self

    def __str__(self) -> str:
        """Return the step in words."""
        if self.expects is None:
            return f"says {self.says}" if self.says is not None else f"waits {self.waits:g} s"
        wanted = self.expects
        if wanted.over:
            return "expects the end of the call"
        given = ", ".join(f"{name}={value!r}" for name, value in wanted.arguments.items())
        return f"expects {wanted.tool}({given})" if wanted.tool else f"expects {wanted.words!r}"


class Story(BaseModel):
    """A call. replies, worker: what the language models answer, in order, as for ``simulate``."""

    model_config = ConfigDict(extra="forbid")

    replies: list[str] = Field(min_length=1)
    worker: list[str] = Field(default_factory=list)
    call: list[StoryStep] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class StepResult:
    """What became of a step. at: its end, in virtual seconds of the call. wrong: why it failed, or ""."""

    step: StoryStep
    at: float
    wrong: str = ""


def read_story(path: Path) -> Story:
    """Return the call that a file describes. Raises WrongStory."""
    try:
        return Story.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise WrongStory(f"{path} cannot be read: {error}") from None
    except ValidationError as error:
        wrong = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, wrong["loc"])) or "the file"
        raise WrongStory(f"{path}: {place}: {wrong['msg']}") from None


def tell(agent: Agent, story: Story) -> list[StepResult]:
    """Hold the call in virtual time, up to the first step that fails, and return what became of each step."""
    return virtual_clock.run(_tell(agent, story))


async def _tell(agent: Agent, story: Story) -> list[StepResult]:
    results: list[StepResult] = []
    async with simulate(agent, *story.replies, worker=story.worker) as caller:
        for step in story.call:
            wrong = await _take(step, caller)
            results.append(StepResult(step, asyncio.get_running_loop().time(), wrong))
            if wrong:
                break
    return results


async def _take(step: StoryStep, caller: SimulatedCaller) -> str:
    """Do one step, and return why it failed, "" if it did not."""
    try:
        if step.says is not None:
            await caller.says(step.says)
        elif step.waits is not None:
            await caller.waits(step.waits)
        elif wanted := step.expects:
            found = await caller.expects(
                wanted.words, tool=wanted.tool, over=wanted.over, within=wanted.within
            )
            other = [name for name, value in wanted.arguments.items() if found.get(name) != value]
            return f"it was called with {found}" if other else ""
    except NotExpected as error:
        return str(error)
    return ""
