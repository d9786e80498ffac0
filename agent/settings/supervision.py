"""The settings of the supervisor, which ends calls that no longer serve their caller."""

from __future__ import annotations

from pydantic import BaseModel, Field

from rejoinder.agent.settings.operating import GOODBYE_CHARACTERS

LAST_WORDS = "I have to end our call here. Goodbye."
"""Spoken before a call ends for its length, for silence, or for speech without an end."""


class SupervisionSettings(BaseModel):
    """The settings of the end of calls that are too long, silent, or stuck."""

    idle_ends: bool = Field(
        False, description="end a call whose caller stays silent for idle_s after the last question"
    )
    last_words: str = Field(
        LAST_WORDS,
        max_length=GOODBYE_CHARACTERS,
        description="spoken before a call ends for its length or for silence; empty: nothing",
    )
    max_stuck_s: float = Field(
        180.0,
        ge=0.0,
        le=86_400.0,
        description="seconds without a sign of life after which a call that owes one ends; 0: never",
    )
    max_endless_turns: int = Field(
        5, ge=0, le=10_000, description="turns of max_turn_s in a row after which a call ends; 0: never"
    )
