"""The common part of the carriers' REST interfaces: requests, without sending any."""

from __future__ import annotations

import base64
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Literal, Protocol
from urllib.parse import quote

from rejoinder.agent.app.control import cannot

Values = Mapping[str, Any]
RING_S = 25
"""Seconds that a person who is to take a call has to answer. The tool's own time limit is 30 s."""
ANNOUNCE = "Transfer without telling anything to the person who answers."
"""Advice where a line can only transfer blindly."""


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """One request to a carrier.

    authorization: the header, which is a secret. json, form: the body, at most one of them.
    again: whether the request may be sent a second time if its answer is lost.
    """

    method: Literal["GET", "POST", "PUT", "DELETE"]
    url: str
    authorization: str = field(repr=False)
    json: Values | None = None
    form: Mapping[str, str] | None = None
    again: bool = True


class Dialled(Enum):
    """How far a call to a third person is."""

    RINGING = auto()
    ANSWERED = auto()
    FAILED = auto()


def progress(answer: Values, answered: str, ringing: Collection[str]) -> Dialled:
    """Return how far a call is, from its ``status``. answered, ringing: the carrier's names of states."""
    status = answer.get("status")
    if status == answered:
        return Dialled.ANSWERED
    return Dialled.RINGING if status in ringing else Dialled.FAILED


class Rooms(Protocol):
    """The requests of a warm transfer: call a person, tell them, and bring both into one conference."""

    def dial(self, to: str, briefing: str, room: str) -> HttpRequest:
        """Return the request that calls a person, who hears the briefing and waits in the room."""

    def dialled(self, answer: Values) -> str:
        """Return the identifier of the call to that person, from the answer to ``dial``."""

    def look(self, id: str) -> HttpRequest:
        """Return the request for the state of that call."""

    def state(self, answer: Values) -> Dialled:
        """Return the state of that call, from the answer to ``look``."""

    def join(self, room: str) -> HttpRequest:
        """Return the request that brings the caller into the room."""

    def drop(self, id: str) -> HttpRequest:
        """Return the request that ends the call to that person."""


class CarrierApi:
    """What a carrier's REST interface can do for one call. This one can do nothing.

    The methods return requests; None where nothing needs to be sent. They raise ToolError for what the
    carrier cannot do. name: of the carrier. tones: whether digits go as tones in the audio. rooms: the
    requests of a warm transfer by a conference, None where ``transfer`` announces by itself or not at all.
    plays: whether ``transfer`` takes the address of the spoken briefing instead of its text.
    """

    name = "the line"
    tones = True
    plays = False
    rooms: Rooms | None = None

    def locate(self) -> HttpRequest | None:
        """Return a request that has to come before all others, None for none."""
        return None

    def located(self, answer: Any) -> None:
        """Take the answer to ``locate``. Raises ToolError."""

    def hang_up(self) -> HttpRequest | None:
        """Return the request that ends the caller's call."""
        return None

    def transfer(self, to: str, briefing: str = "") -> HttpRequest:
        """Return the request that connects the caller with ``to``."""
        raise cannot("transfer calls")

    def send_digits(self, digits: str) -> HttpRequest:
        """Return the request that presses keys."""
        raise cannot("send digits")

    def hold(self) -> HttpRequest | None:
        """Return the request that plays music to the caller."""
        return None

    def resume(self) -> HttpRequest | None:
        """Return the request that stops the music."""
        return None


def basic(user: str, password: str) -> str:
    """Return the header of basic authentication (RFC 7617)."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def segment(text: str) -> str:
    """Return text as one segment of a path: carriers' identifiers come from the network.

    "." and ".." have no escaped form: HTTP clients, and servers that decode first, leave the folder by them
    (RFC 3986, 5.2.4). They become "-", which no carrier knows.
    """
    return "-" if text in (".", "..") else quote(text, safe="")


def is_sip(to: str) -> bool:
    """Return whether a destination is a SIP address rather than a telephone number."""
    return to.startswith(("sip:", "sips:"))


def bare(number: str) -> str:
    """Return the digits of a telephone number, without + and separators."""
    return re.sub(r"\D", "", number)
