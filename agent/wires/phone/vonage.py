"""A WebSocket of Vonage's Voice API: audio in binary messages, everything else in JSON.

Written after developer.vonage.com/en/voice/voice-api/concepts/websockets.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from rejoinder.agent.wires.phone.carrier import Audio, Digit, Format, Frame, Json, Played, Received
from rejoinder.pipeline import ProtocolError

RATES = ("8000", "16000", "24000")
"""Sample rates that Vonage offers, in hertz."""
OWN_FIELDS = ("event", "content-type")
"""Vonage's own fields of the first message. The others are headers of the NCCO: the call's parameters."""


class Vonage:
    """One connection. It ends when the socket closes."""

    name = "Vonage"
    account = ""
    number = ""
    called = ""
    shortest_ms = 60
    clear: Frame | None = json.dumps({"action": "clear"})
    hold: Frame | None = None
    release: Frame | None = None
    ending: Frame | None = None

    def __init__(self, connected: Json) -> None:
        rate = connected.get("content-type").replace(" ", "").removeprefix("audio/l16;rate=")
        if rate not in RATES:
            raise ProtocolError(
                f"Vonage announced {rate[:30]}: set it to audio/l16 at 8000, 16000 or 24000 Hz"
            )
        self.format_in = self.format_out = Format("pcm", int(rate))
        self.step = self.format_out.size(20)
        given = connected.texts()
        self.parameters: Mapping[str, str] = {name: given[name] for name in given if name not in OWN_FIELDS}
        self.id = self.parameters.get("uuid", "")

    def receive(self, frame: Frame) -> Iterable[Received]:
        """Take one message; return what it contains. Raises ProtocolError."""
        if isinstance(frame, bytes):
            return [Audio(frame)]
        message = Json.parse(frame)
        match message.event:
            case "websocket:dtmf":
                return [Digit(message.find("digit") or message.get("dtmf", "digit"))]
            case "websocket:notify":
                return [Played(message.get("payload", "mark"))]
        return []

    def media(self, audio: bytes) -> list[Frame]:
        """Return the messages that queue audio, one per 20 ms."""
        return [*self.format_out.cut(audio)]

    def mark(self, name: str) -> Frame | None:
        """Return the message that asks for a notice."""
        return json.dumps({"action": "notify", "payload": {"mark": name}})
