"""Asterisk's WebSocket channel, chan_websocket, with JSON control messages: since 20.18, 22.8 and 23.2.

Written after docs.asterisk.org/Configuration/Channel-Drivers/WebSocket. This carrier can pause its queue, so
a cough does not cut the agent off.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from rejoinder.agent.wires.phone.carrier import Audio, Digit, Format, Frame, Json, Played, Received, clean
from rejoinder.pipeline import ProtocolError

FORMATS: Mapping[str, Format] = {
    "ulaw": Format("mulaw", 8000),
    "alaw": Format("alaw", 8000),
    "slin": Format("pcm", 8000),
    "slin16": Format("pcm", 16000),
    "slin24": Format("pcm", 24000),
    "slin48": Format("pcm", 48000),
}
"""Audio formats, by Asterisk's names."""


def command(name: str, **fields: str) -> str:
    """Return a command to Asterisk."""
    return json.dumps({"command": name, **fields})


class ChanWebsocket:
    """One channel. It ends when the socket closes."""

    name = "Asterisk"
    account = ""
    number = ""
    called = ""
    shortest_ms = 60
    clear: Frame | None = command("FLUSH_MEDIA")  # also ends a hold
    hold: Frame | None = command("PAUSE_MEDIA")
    release: Frame | None = command("CONTINUE_MEDIA")
    ending: Frame | None = command("HANGUP")

    def __init__(self, start: Json) -> None:
        announced = start.get("format")
        if announced not in FORMATS:
            known = ", ".join(FORMATS)
            raise ProtocolError(f"Asterisk announced {announced[:30]}: dial with c() and one of {known}")
        self.format_in = self.format_out = FORMATS[announced]
        self.step = self.format_out.size(20)  # Asterisk drops incomplete frames
        self.parameters: Mapping[str, str] = {}
        self.id = clean(start.find("channel_id") or start.find("connection_id") or "")

    def receive(self, frame: Frame) -> Iterable[Received]:
        """Take one message; return what it contains. Raises ProtocolError."""
        if isinstance(frame, bytes):
            return [Audio(frame)]
        message = Json.parse(frame)
        match message.event:
            case "DTMF_END":
                return [Digit(message.get("digit"))]
            case "MEDIA_MARK_PROCESSED":
                return [Played(message.find("correlation_id") or "")]
        return []

    def media(self, audio: bytes) -> list[Frame]:
        """Return the message that queues audio, in whole frames of 20 ms."""
        return [audio]

    def mark(self, name: str) -> Frame | None:
        """Return the command that asks for a mark."""
        return command("MARK_MEDIA", correlation_id=name)
