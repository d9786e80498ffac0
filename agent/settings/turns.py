"""The settings for the start and the end of turns."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, Field

from rejoinder.agent.mistakes import place
from rejoinder.pipeline import POINTS, Endpointing, Speakers, TurnTaking, turn_taking


class TurnSettings(BaseModel):
    """The settings of turn-taking. One that is set replaces its part of the operating point."""

    turn_taking: TurnTaking = Field(
        "balanced",
        description="how soon the agent answers: eager cuts callers off more often, patient waits longer",
    )
    phone_turn_taking: TurnTaking | None = Field(
        None, description="the same on telephones, by all carriers and AudioSocket; unset: as turn_taking"
    )
    patience: float | None = Field(
        None,
        gt=0.0,
        le=1000.0,
        description="odds of end over more speech that end a turn; unset: as turn_taking",
    )
    min_wait_ms: int = Field(
        150, ge=100, le=10_000, description="least silence that ends a turn, in milliseconds"
    )
    unsure_wait_ms: int | None = Field(
        None,
        ge=100,
        le=20_000,
        description="silence that ends a turn unless more speech is likely, in milliseconds; unset: as "
        "turn_taking",
    )
    max_wait_ms: int | None = Field(
        None,
        ge=100,
        le=20_000,
        description="silence that ends any turn, in milliseconds; unset: as turn_taking",
    )
    assertiveness: float = Field(
        0.5,
        ge=0.0,
        le=1.0,
        description="how firmly the agent keeps the floor; 0: any speech stops it",
    )
    speakers: Speakers = Field(
        "one",
        description="one: only the caller counts, not quieter voices in the background; many: every voice",
    )
    max_turn_s: float = Field(60.0, ge=1.0, le=3600.0, description="longest turn of a user, in seconds")

    def endpointing(self, phone: bool = False) -> Endpointing:
        """Return the endpointing of a session. phone: whether its call is a telephone call.

        Raises ValueError if the least silence is longer than the longest.
        """
        more: dict[str, Any] = {
            "min_wait_ms": self.min_wait_ms,
            "assertiveness": self.assertiveness,
            "speakers": self.speakers,
            "max_turn_ms": int(self.max_turn_s * 1000),
        }
        return turn_taking(self._point(phone), **self._given(), **more)

    def disorder(self, sources: Mapping[str, str], phone: bool = False) -> str:
        """Return the mistake where the least silence is longer than the longest, "" for none.

        sources: of the settings, by name. phone: as in ``endpointing``.
        """
        point = self._point(phone)
        most = self.max_wait_ms or POINTS[point].max_wait_ms
        if self.min_wait_ms <= most:
            return ""
        least = place("min_wait_ms", sources["min_wait_ms"])
        its = (
            f"max_wait_ms ({point})"
            if self.max_wait_ms is None
            else place("max_wait_ms", sources["max_wait_ms"])
        )
        return f"{least} is {self.min_wait_ms}, which is more than {most}, the value of {its}"

    def _point(self, phone: bool) -> TurnTaking:
        return (self.phone_turn_taking if phone else None) or self.turn_taking

    def _given(self) -> dict[str, Any]:
        """Return what replaces parts of the operating point."""
        names = ("patience", "unsure_wait_ms", "max_wait_ms")
        return {name: value for name in names if (value := getattr(self, name)) is not None}
