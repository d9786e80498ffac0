"""The settings of the page that shows calls to operators, and of the database that keeps them."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, Field

Words = Literal["all", "none"]
"""What is kept of the words of a call that is over."""


class CallSettings(BaseModel):
    """The settings of ``/calls``."""

    calls_page: bool = Field(
        True, description="show calls at /calls, to this machine only or to clients with calls_key"
    )
    calls_key: str = Field(
        "",
        pattern=r"^\s*([0-9a-f]{64}(\s+|$))*$",
        description="SHA-256 of each key for /calls, separated by blanks; rejoinder key makes one",
    )
    calls_db: str = Field("", description="SQLite file that keeps calls that are over; empty: none")
    calls_days: float = Field(
        30.0, gt=0.0, le=3650.0, description="days that calls_db keeps a call after its begin"
    )
    calls_mb: int = Field(
        512, ge=1, le=1_000_000, description="most megabytes of calls in calls_db; the oldest go first"
    )
    calls_words: Words = Field("all", description="words kept of calls that are over: all or none")
