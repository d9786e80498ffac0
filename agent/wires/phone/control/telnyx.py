"""Telnyx's call control commands: https://developers.telnyx.com/api-reference/call-commands/transfer-call.

Telnyx ignores a second command with the same ``command_id``, so each request may be sent again.
"""

from __future__ import annotations

import secrets
from typing import Any

from rejoinder.agent.wires.phone.control.api import RING_S, CarrierApi, HttpRequest, segment


class TelnyxApi(CarrierApi):
    """One call of Telnyx.

    url: of the interface. key: of the API. call: its call_control_id. music: a URL for callers on hold, "".
    """

    name = "Telnyx"
    tones = False
    plays = True

    def __init__(self, url: str, key: str, call: str, music: str) -> None:
        self._actions = f"{url}/v2/calls/{segment(call)}/actions"
        self._authorization = f"Bearer {key}"
        self._music = music

    def hang_up(self) -> HttpRequest:
        """Return the request that ends the call."""
        return self._command("hangup")

    def transfer(self, to: str, briefing: str = "") -> HttpRequest:
        """Return the request that connects the call with a number or a SIP address.

        briefing: address of a WAV file that the person who answers hears first, "" for none.
        """
        fields = {"to": to, "timeout_secs": RING_S}
        return self._command("transfer", **fields, **({"audio_url": briefing} if briefing else {}))

    def send_digits(self, digits: str) -> HttpRequest:
        """Return the request that presses keys."""
        return self._command("send_dtmf", digits=digits)

    def hold(self) -> HttpRequest | None:
        """Return the request that plays music to the caller."""
        return (
            self._command("playback_start", audio_url=self._music, loop="infinity") if self._music else None
        )

    def resume(self) -> HttpRequest | None:
        """Return the request that stops the music."""
        return self._command("playback_stop") if self._music else None

    def _command(self, name: str, **fields: Any) -> HttpRequest:
        body = {**fields, "command_id": secrets.token_hex(16)}
        return HttpRequest("POST", f"{self._actions}/{name}", self._authorization, json=body)
