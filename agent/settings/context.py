"""The settings of long conversations: what a prompt holds of them."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

from rejoinder.pipeline import Compress, condensed, summarise

Summaries = Literal["model", "lines", "off"]
"""What stands in the prompt for turns that have left it."""
COMPRESSIONS: dict[Summaries, Compress | None] = {"model": summarise, "lines": condensed, "off": None}
"""How each of them is made."""


class ContextSettings(BaseModel):
    """The settings of long conversations."""

    prompt_tokens: int = Field(
        0,
        ge=0,
        le=10_000_000,
        description="most tokens of the conversation in a prompt; 0: what the context leaves, at most 8000",
    )
    summaries: Summaries = Field(
        "lines",
        description="what stands in the prompt for turns that have left it: a summary by the language model, "
        "their lines with names, numbers and decisions, or nothing",
    )

    def compress(self, toy: bool) -> Compress | None:
        """Return what makes the summaries, None for nothing. toy: whether the model would invent them."""
        return condensed if toy and self.summaries == "model" else COMPRESSIONS[self.summaries]
