"""The settings of the rules ``[[routes]]``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

Difficulty = Literal["easy", "hard"]
"""What ``difficulty.judge`` says of a question."""
Language = Annotated[str, StringConstraints(pattern=r"^[a-z]{2,3}$")]
KeyStart = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{8,64}$")]
"""The first characters of the SHA-256 of an API key."""
_HOURS = r"^([01]\d|2[0-3]):[0-5]\d-([01]\d|2[0-3]):[0-5]\d$"


class RouteSettings(BaseModel):
    """One rule: the model that is asked first where all of its conditions hold."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    model: str = Field(
        min_length=1, description="the model that is asked first: one of those in `llm`, or `busy_llm`"
    )
    min_words: int | None = Field(None, ge=1, le=1_000, description="fewest words of the caller's turn")
    max_words: int | None = Field(None, ge=1, le=1_000, description="most words of the caller's turn")
    tools: bool | None = Field(None, description="whether the reply may call tools")
    languages: list[Language] = Field([], description="languages of the recogniser, such as `en`")
    hours: str = Field(
        "", pattern=rf"{_HOURS}|^$", description="local time of day, such as `22:00-06:00`, without the end"
    )
    load_above: float | None = Field(
        None, ge=0.0, le=1.0, description="share of its time that the busiest engine spends on urgent work"
    )
    cost_left_below: float | None = Field(
        None, gt=0.0, description="what is left of `day_budget`, in the unit of the prices"
    )
    budget_above: float | None = Field(
        None, ge=0.0, lt=1.0, description="share of a `[budget]` that is used: the one closest to its end"
    )
    keys: list[KeyStart] = Field(
        [], description="API keys of the call: the first 8 characters of their hash, or more"
    )
    difficulty: Difficulty | None = Field(None, description="what the classifier says: easy or hard")

    @model_validator(mode="after")
    def _possible(self) -> Self:
        if not self.conditions:
            raise ValueError("it has no condition: where no rule matches, the first model of llm answers")
        if self.min_words is not None and self.max_words is not None and self.min_words > self.max_words:
            raise ValueError(f"no turn has at least {self.min_words} and at most {self.max_words} words")
        if self.hours and self.minutes[0] == self.minutes[1]:
            raise ValueError(f"hours is {self.hours}, which is never: leave it out for the whole day")
        return self

    @property
    def conditions(self) -> dict[str, object]:
        """The conditions that are set, by name."""
        given = self.model_dump(exclude={"model"})
        return {name: value for name, value in given.items() if value not in (None, "", [])}

    @property
    def minutes(self) -> tuple[int, int]:
        """Begin and end of ``hours``, in minutes from midnight; the whole day without hours."""
        if not self.hours:
            return 0, 24 * 60
        begin, end = (time.split(":") for time in self.hours.split("-"))
        return 60 * int(begin[0]) + int(begin[1]), 60 * int(end[0]) + int(end[1])


@dataclass(frozen=True, slots=True)
class OpeningSettings:
    """What is said while an answer is late.

    phrases: fixed first words. model: the spec or name of a small model that writes them, "" for none.
    after_s: seconds that the answer may take before.
    """

    phrases: Sequence[str] = ()
    model: str = ""
    after_s: float = 0.3


NO_OPENINGS = OpeningSettings()
"""Nothing is said."""
