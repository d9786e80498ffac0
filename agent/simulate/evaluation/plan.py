"""What an evaluation does: the calls of a YAML file, with what is expected of each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from rejoinder.agent.config import ConfigError
from rejoinder.models.hints import needing

Words = Annotated[str, Field(min_length=1)]
Seconds = Annotated[float, Field(gt=0.0, le=60.0)]
Tools = list[dict[str, dict[str, Any] | None]]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
MAX_REPEATS = 1000
"""Most repetitions of a call."""


class Strict(BaseModel):
    """A part of the file; a field that it does not know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ScriptStep(Strict):
    """Something that the caller does; exactly one of the fields, and ``after`` only for ``interrupts``.

    Words alone are ``says``.

    says: words of a turn; the caller then hears the answer out. interrupts: words over the agent's, ``after``
    seconds of its speech. The others are those of ``Caller``.
    """

    says: Words | None = None
    interrupts: Words | None = None
    backchannels: Words | None = None
    types: Words | None = None
    pauses: Seconds | None = None
    waits: Seconds | None = None
    coughs: Seconds | None = None
    after: Seconds | None = None

    @model_validator(mode="before")
    @classmethod
    def _words_alone(cls, given: Any) -> Any:
        return {"says": given} if isinstance(given, str) else given

    @model_validator(mode="after")
    def _one_verb(self) -> ScriptStep:
        verbs = [name for name, value in self if value is not None and name != "after"]
        if len(verbs) != 1:
            known = ", ".join(name for name in type(self).model_fields if name != "after")
            raise ValueError(f"a step has exactly one of {known}")
        if self.after is not None and self.interrupts is None:
            raise ValueError("after belongs to interrupts")
        return self


class Expected(Strict):
    """What must hold after a call.

    tools: by name, the arguments that a call of it must have at least; text may have the wildcards * and ?.
    no_tools: names of tools that must not be called. says, never_says: words that the caller must hear, or
    must not; case and punctuation do not count. judge: a question for the judge that must be answered yes.
    agent: the name of the agent that has the call at the end.
    """

    tools: Tools = []
    no_tools: list[str] = []
    says: list[Words] = []
    never_says: list[Words] = []
    judge: str = ""
    agent: str = ""

    @field_validator("tools")
    @classmethod
    def _one_tool_each(cls, tools: Tools) -> Tools:
        if any(len(tool) != 1 for tool in tools):
            raise ValueError("each entry is one tool with its arguments, such as - book: {people: 4}")
        return tools


class PlannedCall(Strict):
    """One call. caller, called, query, metadata: what the agent's hooks know of it (``CallInfo``)."""

    name: Words
    script: Annotated[list[ScriptStep], Field(min_length=1)]
    expect: Expected
    caller: str = ""
    called: str = ""
    query: dict[str, str] = {}
    metadata: dict[str, str] = {}
    threshold: Share | None = None


class EvaluationPlan(Strict):
    """The whole file.

    agent: as for ``rejoinder serve``; a file's name is relative to this one. llm, judge: specs of language
    models. repeat: how often each call is held. threshold: share of its repetitions that must pass.
    """

    agent: Words
    llm: str = ""
    judge: str = ""
    repeat: Annotated[int, Field(ge=1, le=MAX_REPEATS)] = 1
    threshold: Share = 1.0
    calls: Annotated[list[PlannedCall], Field(min_length=1)]

    @model_validator(mode="after")
    def _names_differ(self) -> EvaluationPlan:
        names = [call.name for call in self.calls]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"two calls have the name {min(twice)!r}")
        return self


def read_plan(path: Path) -> EvaluationPlan:
    """Return the evaluation in a YAML file.

    Raises ConfigError with the line of each mistake, and NotInstalled without PyYAML.
    """
    with needing("eval", "rejoinder eval"):
        import yaml
    try:
        text = path.read_text(encoding="utf-8")
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        raise ConfigError(f"{path}:{mark.line + 1 if mark else 1}: {error.problem}") from None
    try:
        plan = EvaluationPlan.model_validate(data)
    except ValidationError as error:
        mistakes = error.errors(include_url=False, include_input=False)
        lines = [f"{path}:{_line(root, one['loc'])}: {_described(one)}" for one in mistakes]
        raise ConfigError("\n".join(dict.fromkeys(lines))) from None
    if plan.agent.endswith(".py") or ".py:" in plan.agent:
        plan = plan.model_copy(update={"agent": str(path.parent / plan.agent)})
    return plan


def _described(mistake: Any) -> str:
    """Return the field and what is wrong with it; the entries of a list count from 1."""
    parts = [str(one + 1) if isinstance(one, int) else one for one in mistake["loc"]]
    what = mistake["msg"].removeprefix("Value error, ")
    if mistake["type"] == "extra_forbidden":
        what = "there is no such field"
    return f"{'.'.join(parts) or 'the file'}: {what}"


def _line(node: Any, loc: tuple[int | str, ...]) -> int:
    """Return the line of a field, or of the nearest part around it that is there."""
    if node is None:
        return 1
    line: int = node.start_mark.line + 1
    for part in loc:
        if isinstance(part, int) and isinstance(node.value, list) and part < len(node.value):
            node = node.value[part]
        elif isinstance(part, str) and type(node).__name__ == "MappingNode":
            found = [(key, value) for key, value in node.value if key.value == part]
            if not found:
                continue
            key, node = found[0]
            line = key.start_mark.line + 1
            continue
        else:
            continue
        line = node.start_mark.line + 1
    return line
