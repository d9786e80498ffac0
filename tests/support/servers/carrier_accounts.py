"""Accounts at the carriers: the REST interface of each, the simulated line, and the settings that fit both.

A carrier is (makes the interface, the line, the setting of its address, the other settings).
"""

from __future__ import annotations

from typing import Any, ClassVar

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from support.callers.carriers import AsteriskSim, PlivoSim, TelnyxSim, TwilioSim, VonageSim
from support.servers.carrier_rest import Seen, asterisk, plivo, telnyx, twilio, vonage

from rejoinder.agent.wires.phone.control.api import basic

CALL, SALES, MUSIC = "CA" + "0" * 32, "+4930123456", "https://agent.example.com/music.mp3"
ACCOUNT = "AC" + "0" * 32
CONTROL_ID = "v2:T02llQxIyaRkhfRKxgAP8nY511EhFLizdvdUKJiSw8d6A9BborherQ"
PLIVO_CALL, PLIVO_ACCOUNT = "12345678-1234-1234-1234-123456789abc", "MAXXXXXXXXXXXXXXXXXX"
UUID = "63f61863-4a51-4f6b-86e1-46edebcf9356"
OWN, PEER = "pbx1-123456789.999", "pbx1-123456789.998"
KEY = rsa.generate_private_key(65537, 2048)
PEM = KEY.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def signed(header: str) -> bool:
    """Return whether Vonage accepts a token: RS256, by the application's key, not expired."""
    claims = jwt.decode(header.removeprefix("Bearer "), KEY.public_key(), algorithms=["RS256"])
    return header.startswith("Bearer ") and claims["application_id"] == "app-1" and bool(claims["jti"])


class InConference(VonageSim):
    """Vonage, whose NCCO passes the caller's identifier."""

    parameters: ClassVar[dict[str, str]] = {"uuid": UUID}


FOR_TWILIO = (
    lambda: twilio(basic(ACCOUNT, "t"), ACCOUNT),
    TwilioSim,
    "twilio_url",
    {"twilio_auth_token": "t"},
)
FOR_TELNYX = (lambda: telnyx("Bearer k", CONTROL_ID), TelnyxSim, "telnyx_url", {"telnyx_api_key": "k"})
FOR_PLIVO = (
    lambda: plivo(basic(PLIVO_ACCOUNT, "t"), PLIVO_ACCOUNT, PLIVO_CALL),
    PlivoSim,
    "plivo_url",
    {"plivo_auth_token": "t", "public_url": "https://agent.example.com"},
)
FOR_VONAGE = (
    lambda: vonage(signed, UUID),
    InConference,
    "vonage_url",
    {"vonage_private_key": PEM, "vonage_application_id": "app-1"},
)
FOR_ASTERISK = (
    lambda: asterisk(basic("ari", "p"), OWN, PEER),
    AsteriskSim,
    "ari_url",
    {"ari_user": "ari", "ari_password": "p", "ari_context": "people"},
)


def told(seen: list[Seen]) -> list[tuple[str, str, dict[str, Any]]]:
    return [(one.method, one.path, {**one.query, **one.body}) for one in seen]
