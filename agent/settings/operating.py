"""The settings for operators: the end of the server, and the proxies in front of it."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, Field

from rejoinder.agent.settings.networks import list_of_networks

DRAIN_GOODBYE = "I am sorry, I have to end this call now. Please call again in a minute."
"""Spoken in a call that goes on when the server has drained for ``drain_s``."""
GOODBYE_CHARACTERS = 150
"""Most characters of a goodbye: it is spoken in ten seconds, the longest time for last words."""


HANDSHAKE_SECONDS = 10.0
"""Longest time for the head of a request, and for the handshake of a WebSocket, in seconds."""


class OperatingSettings(BaseModel):
    """The settings of the end of the server, of proxies, and of connections."""

    drain_s: float = Field(
        30.0,
        ge=0.0,
        le=86_400.0,
        description="seconds that calls in progress get to end after SIGTERM; 0: end them at once",
    )
    drain_goodbye: str = Field(
        DRAIN_GOODBYE,
        max_length=GOODBYE_CHARACTERS,
        description="spoken in calls that have not ended within drain_s; empty: nothing",
    )
    drain_url: str = Field(
        "",
        pattern=r"^(wss?://[A-Za-z0-9.-]+(:[0-9]{1,5})?|wss?://\[[0-9a-f:]+\](:[0-9]{1,5})?)?$",
        max_length=80,
        description="address of a server that takes new calls while this one drains, such as wss://b.example.com",
    )
    trusted_proxies: Annotated[str, AfterValidator(list_of_networks)] = Field(
        "127.0.0.1 ::1",
        description="addresses and networks of proxies whose X-Forwarded-For names the client",
    )
    behind_balancer: bool = Field(
        False,
        description="refuse all calls that cannot begin by HTTP 503, so that a balancer asks another server; "
        "off: accept those of pages, and all while lines are busy, to close them with the reason",
    )
    max_connects_per_s: int = Field(
        0,
        ge=0,
        le=100_000,
        description="most new connections that are read in a second, after the first 50; 0: no limit",
    )
    handshake_s: float = Field(
        HANDSHAKE_SECONDS,
        gt=0.0,
        le=600.0,
        description="seconds for the head of a request or the handshake of a WebSocket; then it is dropped",
    )
    max_messages_per_s: int = Field(
        1000, ge=0, le=100_000, description="most messages of a call, averaged over 10 seconds; 0: no limit"
    )
    max_step_s: float = Field(
        10.0,
        ge=0.0,
        le=86_400.0,
        description="seconds after which a step of a model on this machine counts as hung; 0: never",
    )
    max_silent_s: float = Field(
        0.0, ge=0.0, le=86_400.0, description="seconds without any message after which a call ends; 0: never"
    )
