"""Vonage's Voice API: https://developer.vonage.com/en/api/voice, and its NCCO documents.

The WebSocket does not say which call it belongs to: the NCCO has to pass the caller's ``uuid`` in its
``headers``.
"""

from __future__ import annotations

import secrets
import time
from pathlib import Path
from typing import Any, Literal

import jwt

from rejoinder.agent.app.control import cannot
from rejoinder.agent.carriers import CarrierSettings
from rejoinder.agent.config import ConfigError
from rejoinder.agent.wires.phone.control.api import (
    RING_S,
    CarrierApi,
    Dialled,
    HttpRequest,
    Values,
    bare,
    is_sip,
    progress,
    segment,
)

TOKEN_S = 300
"""Seconds for which a token of ours is valid. Each request has a new one."""
VONAGE_RINGING = ("started", "ringing")
"""Vonage's states of a call before somebody answers."""


class VonageApi(CarrierApi):
    """One call of Vonage.

    url: of the interface. application: its identifier. key: its private key. call: the caller's uuid. number:
    the caller id of calls to third persons, "" if unknown. music: a URL for callers on hold, "" for none.
    """

    name = "Vonage"
    tones = False

    def __init__(self, url: str, application: str, key: str, call: str, number: str, music: str) -> None:
        self._calls = f"{url}/v1/calls"
        self._application = application
        self._key = key
        self._call = call
        self._number = bare(number)
        self._music = music
        self.rooms = self

    def hang_up(self) -> HttpRequest:
        """Return the request that ends the call."""
        return self._put(self._call, action="hangup")

    def transfer(self, to: str, briefing: str = "") -> HttpRequest:
        """Return the request that gives the call a new NCCO, which dials a number."""
        connect: dict[str, Any] = {"action": "connect", "endpoint": [endpoint(to)]}
        return self._ncco({**connect, "from": self._number} if self._number else connect)

    def send_digits(self, digits: str) -> HttpRequest:
        """Return the request that presses keys."""
        return self._request("PUT", f"{segment(self._call)}/dtmf", {"digits": digits}, again=False)

    def hold(self) -> HttpRequest | None:
        """Return the request that plays music to the caller."""
        music = {"stream_url": [self._music], "loop": 0}
        return self._request("PUT", f"{segment(self._call)}/stream", music) if self._music else None

    def resume(self) -> HttpRequest | None:
        """Return the request that stops the music."""
        return self._request("DELETE", f"{segment(self._call)}/stream") if self._music else None

    def dial(self, to: str, briefing: str, room: str) -> HttpRequest:
        """Return the request that calls a person, who hears the briefing and waits in the room."""
        if not self._number:
            raise cannot("announce a transfer", "Its own number is unknown: see the setting phone_number.")
        ncco = [{"action": "talk", "text": briefing}, conversation(room)]
        whom = {"to": [endpoint(to)], "from": {"type": "phone", "number": self._number}}
        return self._request("POST", "", {**whom, "ncco": ncco, "ringing_timer": RING_S}, again=False)

    def dialled(self, answer: Values) -> str:
        """Return the identifier of that call."""
        return str(answer["uuid"])

    def look(self, id: str) -> HttpRequest:
        """Return the request for the state of that call."""
        return self._request("GET", segment(id))

    def state(self, answer: Values) -> Dialled:
        """Return the state of that call."""
        return progress(answer, "answered", VONAGE_RINGING)

    def join(self, room: str) -> HttpRequest:
        """Return the request that brings the caller into the room."""
        return self._ncco(conversation(room))

    def drop(self, id: str) -> HttpRequest:
        """Return the request that ends that call."""
        return self._put(id, action="hangup")

    def _ncco(self, *actions: dict[str, Any]) -> HttpRequest:
        return self._put(self._call, action="transfer", destination={"type": "ncco", "ncco": [*actions]})

    def _put(self, call: str, **body: Any) -> HttpRequest:
        return self._request("PUT", segment(call), body)

    def _request(
        self,
        method: Literal["GET", "POST", "PUT", "DELETE"],
        path: str,
        body: Values | None = None,
        again: bool = True,
    ) -> HttpRequest:
        url = f"{self._calls}/{path}" if path else self._calls
        return HttpRequest(method, url, bearer(self._application, self._key), json=body, again=again)


def conversation(room: str) -> dict[str, Any]:
    """Return the NCCO action that takes a call into a conference, which ends when one of them leaves."""
    return {"action": "conversation", "name": room, "endOnExit": True}


def endpoint(to: str) -> dict[str, Any]:
    """Return a number or a SIP address as an endpoint."""
    return {"type": "sip", "uri": to} if is_sip(to) else {"type": "phone", "number": bare(to)}


def bearer(application: str, key: str) -> str:
    """Return the header of a request: a token signed with the application's private key.

    https://developer.vonage.com/en/getting-started/concepts/authentication.

    Raises ValueError for what is no key.
    """
    now = int(time.time())
    claims = {"application_id": application, "iat": now, "exp": now + TOKEN_S, "jti": secrets.token_hex(16)}
    try:
        return f"Bearer {jwt.encode(claims, key, algorithm='RS256')}"
    except jwt.PyJWTError as error:
        raise ValueError("no private key") from error


def key_of(settings: CarrierSettings) -> str:
    """Return the private key in the settings: the setting itself, or the contents of the file that it names.

    "" for none. Raises ConfigError where it cannot be read or is no key.
    """
    if not (given := settings.vonage_private_key.get_secret_value()):
        return ""
    try:
        key = given if given.lstrip().startswith("-----BEGIN") else Path(given).read_text()
        bearer("", key)  # rather now than in the first call
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no private key in PEM"
        raise ConfigError(f"vonage_private_key: {reason}") from None
    return key
