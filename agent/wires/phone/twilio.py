"""Carriers whose streams are JSON with base64 audio: Twilio, and the dialects of Telnyx, Exotel and Plivo.

Written after their documents: twilio.com/docs/voice/media-streams/websocket-messages,
developers.telnyx.com/api-reference/websockets/stream-call-media-over-websocket,
developer.exotel.com/docs/agentstream/websocket-protocol,
plivo.com/docs/voice/audio-streaming/audio-streaming.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import pybase64

from rejoinder.agent.wires.phone.carrier import (
    Audio,
    Digit,
    Format,
    Frame,
    Json,
    Played,
    Received,
    Stopped,
    clean,
)
from rejoinder.agent.wires.phone.reorder import Reorder
from rejoinder.pipeline import ProtocolError

MULAW = Format("mulaw", 8000)
"""Mu-law at 8 kHz."""
ENCODINGS: Mapping[str, Format] = {
    "audio/x-mulaw": MULAW,
    "PCMU": MULAW,
    "PCMA": Format("alaw", 8000),
}
"""Audio formats, by the names that carriers give them."""


class Twilio:
    """A stream of Twilio, or of a carrier with the same messages. key: its name for the stream's id."""

    step = 1
    shortest_ms = 50
    clearing = "clear"
    hold: Frame | None = None
    release: Frame | None = None
    ending: Frame | None = None

    def __init__(
        self, start: Json, name: str = "Twilio", key: str = "streamSid", format_in: Format = MULAW
    ) -> None:
        self.name = name
        names = ("callSid", "call_control_id", "callId", "call_sid", key)
        self.id = clean(next(filter(None, (start.find("start", each) for each in names)), ""))
        self.account = clean(start.find("start", "accountSid") or start.find("start", "accountId") or "")
        self.number = clean(start.find("start", "from") or "")
        self.called = clean(start.find("start", "to") or "")
        self.format_in = format_in
        self.format_out = format_in
        self.parameters: Mapping[str, str] = {}
        self._stream = {key: start.find("start", key) or start.find(key) or ""}
        self.clear: Frame | None = self._message(self.clearing)

    def receive(self, frame: Frame) -> Iterable[Received]:
        """Take one message; return what it contains. Unknown types are ignored. Raises ProtocolError."""
        message = Json.parse(frame)
        match message.event:
            case "media" if message.find("media", "track") not in ("outbound", "outbound_track"):
                return self._ordered(message)
            case "dtmf":
                return [Digit(message.get("dtmf", "digit"))]
            case "mark":
                return [Played(message.get("mark", "name"))]
            case "stop":
                return [Stopped()]
        return []

    def media(self, audio: bytes) -> list[Frame]:
        """Return the message that queues audio."""
        return [self._message("media", media={"payload": pybase64.b64encode(audio).decode("ascii")})]

    def mark(self, name: str) -> Frame | None:
        """Return the message that asks for a mark. After a clear, all marks come back at once."""
        return self._message("mark", mark={"name": name})

    def _ordered(self, message: Json) -> Iterable[Received]:
        return [message.audio("media", "payload")]

    def _message(self, event: str, **fields: Any) -> str:
        return json.dumps({"event": event, **self._stream, **fields})


class Telnyx(Twilio):
    """A stream of Telnyx. Its frames may arrive out of order. It takes PCMU, whatever format it sends."""

    def __init__(self, start: Json, format_in: Format) -> None:
        super().__init__(start, "Telnyx", "stream_id", format_in)
        # The default of stream_bidirectional_codec, which the start message does not contain.
        self.format_out = MULAW
        self.parameters = start.texts("start", "custom_parameters")
        self._reorder = Reorder()

    def _ordered(self, message: Json) -> Iterable[Received]:
        audio = message.audio("media", "payload").data
        number = message.find("media", "chunk") or ""
        if not (number.isascii() and number.isdigit() and len(number) < 12):
            return [Audio(audio)]
        return [Audio(piece) for piece in self._reorder.take(int(number), audio)]


class Exotel(Twilio):
    """A stream of Exotel: 16-bit PCM in messages of 100 ms.

    Sizes that are no multiple of 320 bytes cause gaps.
    """

    step = 320
    shortest_ms = 100


class Plivo(Twilio):
    """A stream of Plivo: Twilio's with other message names.

    A checkpoint that was cleared does not come back.
    """

    clearing = "clearAudio"

    def receive(self, frame: Frame) -> Iterable[Received]:
        """Take one message; return what it contains. Raises ProtocolError."""
        message = Json.parse(frame)
        if message.event == "playedStream":
            return [Played(message.get("name"))]
        return super().receive(frame)

    def media(self, audio: bytes) -> list[Frame]:
        """Return the message that queues audio."""
        payload = pybase64.b64encode(audio).decode("ascii")
        media = {"contentType": "audio/x-mulaw", "sampleRate": 8000, "payload": payload}
        return [json.dumps({"event": "playAudio", "media": media})]

    def mark(self, name: str) -> Frame | None:
        """Return the message that asks for a checkpoint."""
        return self._message("checkpoint", name=name)


def started(start: Json) -> Twilio:
    """Return the carrier that sent this ``start``, by the names of its fields. Raises ProtocolError."""
    if start.find("start", "streamSid") and start.find("start", "callSid"):
        carrier = Twilio(start, format_in=announced("Twilio", start, "start", "mediaFormat", "encoding"))
        carrier.parameters = start.texts("start", "customParameters")
        return carrier
    if start.find("stream_id") and start.find("start", "call_control_id"):
        return Telnyx(start, announced("Telnyx", start, "start", "media_format", "encoding"))
    if start.find("start", "streamId") and start.find("start", "callId"):
        format_in = announced("Plivo", start, "start", "mediaFormat", "encoding")
        plivo = Plivo(start, "Plivo", "streamId", format_in)
        plivo.parameters = headers(start.find("extra_headers") or "")
        return plivo
    if start.find("start", "stream_sid") and start.find("start", "call_sid"):
        rate = start.find("start", "media_format", "sample_rate") or "8000"
        if rate not in ("8000", "16000", "24000"):
            raise ProtocolError(f"Exotel announced {rate[:20]} Hz: set it to 8000, 16000 or 24000")
        exotel = Exotel(start, "Exotel", "stream_sid", Format("pcm", int(rate)))
        exotel.parameters = start.texts("start", "custom_parameters")
        return exotel
    raise ProtocolError("the start message is not from Twilio, Telnyx, Plivo or Exotel")


def announced(carrier: str, start: Json, *path: str) -> Format:
    """Return the format that a carrier announces. Raises ProtocolError for a format that is not supported."""
    encoding = start.get(*path)
    rate = start.find(*path[:-1], "sampleRate") or start.find(*path[:-1], "sample_rate") or "8000"
    known = ENCODINGS.get(encoding)
    if known is None or rate != "8000" or (known is not MULAW and carrier != "Telnyx"):
        raise ProtocolError(
            f"{carrier} announced {encoding[:30]} at {rate[:10]} Hz: set it to mu-law at 8000 Hz"
        )
    return known


def headers(text: str) -> dict[str, str]:
    """Return Plivo's extra headers, which have the form ``name=value;name=value``."""
    pairs = (pair.partition("=") for pair in clean(text).split(";") if "=" in pair)
    return {name.strip(): value.strip() for name, _, value in pairs}
