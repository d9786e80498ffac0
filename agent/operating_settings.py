"""The settings for operators: the log, the end of the server, and limits."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field, SecretStr

AUTO_FORM = "auto"
"""Form of the log's lines: JSON, unless the log goes to a terminal."""
PRETTY = "pretty"
"""A line of text for people, in colour in a terminal."""
JSON_FORM = "json"
"""A JSON object for each line, for programs."""
DRAIN_GOODBYE = "I am sorry, I have to end this call now. Please call again in a minute."
"""Spoken in a call that a restart of the server ends."""
USUAL_HANDSHAKE_SECONDS = 10.0
"""Longest time for the head of a request, and for the handshake of a WebSocket, in seconds."""
LONGEST_GOODBYE = 300
"""Most characters of a goodbye."""


def list_of_networks(text: str) -> str:
    """Return addresses and networks, separated by blanks. Raises ValueError."""
    for one in (parts := text.replace(",", " ").split()):
        ip_network(one)
    return " ".join(parts)


class OperatingSettings(BaseModel):
    """The settings of the log, of the end of the server, and of limits."""

    log_level: str = Field("info", pattern="^(debug|info|warning|error)$", description="how much to log")
    log_format: str = Field(
        "auto",
        pattern=f"^({AUTO_FORM}|{PRETTY}|{JSON_FORM})$",
        description="form of the log's lines: auto, pretty or json; auto: json unless in a terminal",
    )
    log_words: bool = Field(
        False, description="let the log contain words of callers: at debug, what libraries send and receive"
    )
    drain_s: float = Field(
        30.0,
        ge=0.0,
        le=86_400.0,
        description="seconds that calls in progress get to end after SIGTERM; 0: end them at once",
    )
    drain_goodbye: str = Field(
        DRAIN_GOODBYE,
        max_length=LONGEST_GOODBYE,
        description="spoken in calls that have not ended within drain_s; empty: nothing",
    )
    drain_url: str = Field(
        "",
        pattern=r"^(wss?://[\w.:-]+(/\S*)?)?$",
        description="WebSocket address that takes new calls while this server drains; empty: none",
    )
    key_sessions: int = Field(0, ge=0, le=10_000, description="most calls at a time per key; 0: no limit")
    key_calls_per_min: int = Field(
        0, ge=0, le=10_000, description="most calls and requests per key in any 60 seconds; 0: no limit"
    )
    key_audio_s_per_day: int = Field(
        0,
        ge=0,
        le=99_999_999,
        description="most seconds of callers' audio per key in 24 hours; 0: no limit",
    )
    key_tokens_per_day: int = Field(
        0,
        ge=0,
        le=9_999_999_999,
        description="most tokens of the language model, prompts included, per key in 24 hours; 0: no limit",
    )
    address_sessions: int = Field(
        0, ge=0, le=10_000, description="most calls at a time per address; 0: no limit"
    )
    address_calls_per_min: int = Field(
        0, ge=0, le=10_000, description="most calls and requests per address in any 60 seconds; 0: no limit"
    )
    address_exempt: Annotated[str, AfterValidator(list_of_networks)] = Field(
        "", description="addresses and networks without limits per address, such as a carrier's"
    )
    limits_store: SecretStr = Field(
        SecretStr(""),
        description="Redis server where servers count limits per key and address together, and share client "
        "secrets, such as redis://HOST; empty: each server by itself",
    )
    limits_without_store: Literal["open", "closed"] = Field(
        "open",
        description="what applies while limits_store is away: open: each server's own limits; closed: calls "
        "and requests with a limit are refused",
    )
    trusted_proxies: Annotated[str, AfterValidator(list_of_networks)] = Field(
        "127.0.0.1 ::1",
        description="addresses and networks of proxies whose X-Forwarded-For names the client",
    )
    behind_balancer: bool = Field(
        False,
        description="refuse calls by HTTP 503 while all lines are busy, pages too, so that a balancer asks "
        "another server; off: accept them, and close them with the reason",
    )
    max_connects_per_s: int = Field(
        0, ge=0, le=100_000, description="most new connections served in a second; others wait; 0: no limit"
    )
    handshake_s: float = Field(
        USUAL_HANDSHAKE_SECONDS,
        gt=0.0,
        le=600.0,
        description="seconds for the head of a request or a WebSocket's handshake; then it is dropped",
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

    @property
    def key_limits(self) -> tuple[int, int, int, int]:
        """The limits of a key without limits of its own.

        They are calls at a time and in a minute, and seconds of audio and tokens in a day.
        """
        calls = self.key_sessions, self.key_calls_per_min
        return *calls, self.key_audio_s_per_day, self.key_tokens_per_day
