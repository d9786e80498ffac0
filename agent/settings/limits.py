"""The settings of limits per key and per address, and of the store by which servers share them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field, SecretStr

from rejoinder.agent.settings.networks import list_of_networks


class LimitSettings(BaseModel):
    """The settings of limits per key and per address."""

    key_sessions: int = Field(0, ge=0, le=10_000, description="most calls at a time per key; 0: no limit")
    key_calls_per_min: int = Field(
        0, ge=0, le=10_000, description="most calls and requests per key in any 60 seconds; 0: no limit"
    )
    key_audio_s_per_day: int = Field(
        0,
        ge=0,
        le=99_999_999,
        description="most seconds of callers' audio per key on one day; 0: no limit",
    )
    address_sessions: int = Field(
        0, ge=0, le=10_000, description="most calls at a time per address of clients; 0: no limit"
    )
    address_calls_per_min: int = Field(
        0, ge=0, le=10_000, description="most calls and requests per address in any 60 seconds; 0: no limit"
    )
    address_audio_s_per_day: int = Field(
        0,
        ge=0,
        le=99_999_999,
        description="most seconds of callers' audio per address on one day; 0: no limit",
    )
    address_exempt: Annotated[str, AfterValidator(list_of_networks)] = Field(
        "", description="addresses and networks without limits per address, such as a carrier's"
    )
    limits_store: SecretStr = Field(
        SecretStr(""),
        description="Redis server by which servers apply limits and budgets together and share client "
        "secrets, such as redis://HOST; empty: each server by itself",
    )
    limits_without_store: Literal["open", "closed"] = Field(
        "open",
        description="what applies while limits_store is away: open: each server's own limits; closed: calls "
        "and requests with a limit are refused",
    )
