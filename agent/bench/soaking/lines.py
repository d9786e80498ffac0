"""The client's side of each wire that carries speech, without any I/O.

The carriers' messages follow their documents, which ``agent/wires/phone`` names.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from rejoinder.agent.wires import g711
from rejoinder.agent.wires.audiosocket.protocol import (
    AUDIO_PACKET,
    DTMF,
    HANG_UP,
    UUID,
    packet,
)
from rejoinder.agent.wires.phone.carrier import Frame

TWENTY_MS_BYTES = 320
"""Bytes of 20 ms of 16-bit audio at 8 kHz: one packet of AudioSocket."""
SLIN16_FRAME_BYTES = 640
"""Bytes of 20 ms of 16-bit audio at 16 kHz."""
EXOTEL_BYTES = 1600
"""Bytes in one message of Exotel: 100 ms of 16-bit audio at 8 kHz."""


@dataclass(frozen=True, slots=True)
class FromAgent:
    """What a message of the server contains.

    audio: 16-bit PCM at the line's rate. mark: a name that the line returns when all audio before it has been
    played. cleared: whether all unplayed audio is to be dropped. place: the conversation and its last event,
    with which a call can be resumed, None on wires without it.
    """

    audio: bytes = b""
    mark: str = ""
    cleared: bool = False
    place: tuple[str, str] | None = None


NOTHING_NEW = FromAgent()
"""A message without anything that concerns a line."""


class SoakLine(Protocol):
    """The client's side of one wire. wire: its name. path: of the WebSocket. rate: in hertz."""

    wire: str
    path: str
    rate: int

    def opening(self) -> Sequence[Frame]:
        """Return the messages with which a call begins."""

    def audio(self, pcm: bytes) -> Sequence[Frame]:
        """Return the messages for audio of the caller, 16-bit PCM."""

    def take(self, frame: Frame) -> FromAgent:
        """Return what a message of the server contains."""

    def played(self, mark: str) -> Sequence[Frame]:
        """Return the messages that return a mark."""

    def digit(self, key: str) -> Sequence[Frame]:
        """Return the messages for a pressed key; none where the wire has no keys."""

    def stop(self) -> Sequence[Frame]:
        """Return the messages with which the caller hangs up, before the socket closes."""


def encoded(data: bytes) -> str:
    """Return bytes as base64."""
    return base64.b64encode(data).decode("ascii")


class RealtimeLine:
    """A client of the Realtime protocol; ``wire`` is "page" for one with the options of the page."""

    rate = 24_000

    def __init__(self, page: bool = False) -> None:
        self.wire = "page" if page else "realtime"
        self.path = "/v1/realtime?model=default" + ("&hold=true&trace=true&actions=true" if page else "")
        self._conversation = ""

    def opening(self) -> Sequence[Frame]:
        """Return nothing: the server begins."""
        return ()

    def audio(self, pcm: bytes) -> Sequence[Frame]:
        """Return the event that appends audio."""
        return (json.dumps({"type": "input_audio_buffer.append", "audio": encoded(pcm)}),)

    def take(self, frame: Frame) -> FromAgent:
        """Return what an event contains."""
        event = json.loads(frame)
        match event["type"]:
            case "response.output_audio.delta":
                return FromAgent(base64.b64decode(event["delta"]), place=self._place(event))
            case "input_audio_buffer.speech_started":
                return FromAgent(cleared=self.wire != "page", place=self._place(event))
            case "conversation.created":
                self._conversation = event["conversation"]["id"]
        return FromAgent(place=self._place(event))

    def _place(self, event: dict[str, Any]) -> tuple[str, str] | None:
        return (self._conversation, event["event_id"]) if self._conversation else None

    def played(self, mark: str) -> Sequence[Frame]:
        """Return nothing: there are no marks."""
        return ()

    def digit(self, key: str) -> Sequence[Frame]:
        """Return nothing: there are no keys."""
        return ()

    def stop(self) -> Sequence[Frame]:
        """Return nothing: closing the socket hangs up."""
        return ()


class PcmLine:
    """A device or a script with raw PCM."""

    wire = "pcm"
    path = "/v1/pcm?rate=16000"
    rate = 16_000

    def opening(self) -> Sequence[Frame]:
        """Return nothing: the server begins."""
        return ()

    def audio(self, pcm: bytes) -> Sequence[Frame]:
        """Return the audio itself."""
        return (pcm,)

    def take(self, frame: Frame) -> FromAgent:
        """Return what a message contains."""
        if isinstance(frame, bytes):
            return FromAgent(frame)
        return FromAgent(cleared=json.loads(frame)["type"] == "clear")

    def played(self, mark: str) -> Sequence[Frame]:
        """Return nothing: there are no marks."""
        return ()

    def digit(self, key: str) -> Sequence[Frame]:
        """Return nothing: there are no keys."""
        return ()

    def stop(self) -> Sequence[Frame]:
        """Return nothing: closing the socket hangs up."""
        return ()


class TwilioLine:
    """Twilio's media stream, and with other words those of Telnyx, Plivo and Exotel.

    number: makes the identifiers of the call.
    """

    path = "/v1/phone"
    rate = 8_000

    def __init__(self, wire: str, number: int) -> None:
        self.wire = wire
        self._words = DIALECTS[wire]
        self._stream = f"MZ{number:032x}"
        self._call = f"CA{number:032x}"
        self._count = 0
        self._early = b""

    def opening(self) -> Sequence[Frame]:
        """Return the messages that announce the stream."""
        return (self._message("start", start=self._words.start(self._stream, self._call)),)

    def audio(self, pcm: bytes) -> Sequence[Frame]:
        """Return the messages with audio."""
        if self._words.media == "pcm":
            self._early += pcm
            count = len(self._early) // EXOTEL_BYTES
            whole, self._early = self._early[: count * EXOTEL_BYTES], self._early[count * EXOTEL_BYTES :]
            pieces = [whole[first : first + EXOTEL_BYTES] for first in range(0, len(whole), EXOTEL_BYTES)]
        else:
            pieces = [g711.encode(pcm, "alaw" if self._words.media == "alaw" else "mulaw")]
        return [self._piece(piece) for piece in pieces]

    def _piece(self, data: bytes) -> str:
        self._count += 1
        media = {"chunk": str(self._count), "timestamp": str(20 * self._count), "payload": encoded(data)}
        return self._message("media", media={"track": "inbound", **media})

    def take(self, frame: Frame) -> FromAgent:
        """Return what a message contains."""
        message = json.loads(frame)
        match message["event"]:
            case "media" | "playAudio":
                data = base64.b64decode(message["media"]["payload"])
                return FromAgent(data if self._words.media == "pcm" else g711.decode(data, "mulaw"))
            case "mark":
                return FromAgent(mark=message["mark"]["name"])
            case "checkpoint":
                return FromAgent(mark=message["name"])
            case "clear" | "clearAudio":
                return FromAgent(cleared=True)
        return NOTHING_NEW

    def played(self, mark: str) -> Sequence[Frame]:
        """Return the notice that a mark was played."""
        if self.wire == "Plivo":
            return (self._message("playedStream", name=mark),)
        return (self._message("mark", mark={"name": mark}),)

    def digit(self, key: str) -> Sequence[Frame]:
        """Return the message for a key."""
        return (self._message("dtmf", dtmf={"track": "inbound_track", "digit": key}),)

    def stop(self) -> Sequence[Frame]:
        """Return the message that ends the stream."""
        return (self._message("stop", stop={}),)

    def _message(self, event: str, **fields: Any) -> str:
        self._count += event == "start"
        return json.dumps({"event": event, self._words.key: self._stream, **fields})


@dataclass(frozen=True, slots=True)
class Dialect:
    """A carrier's words. key: for the stream. start: makes the start's fields. media: the caller's audio."""

    key: str
    start: Callable[[str, str], dict[str, Any]]
    media: str


DIALECTS = {
    "Twilio": Dialect(
        "streamSid",
        lambda stream, call: {
            "accountSid": "AC0",
            "streamSid": stream,
            "callSid": call,
            "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
        },
        "mulaw",
    ),
    "Telnyx": Dialect(
        "stream_id",
        lambda stream, call: {
            "call_control_id": call,
            "media_format": {"encoding": "PCMA", "sample_rate": 8000, "channels": 1},
        },
        "alaw",
    ),
    "Plivo": Dialect(
        "streamId",
        lambda stream, call: {
            "callId": call,
            "streamId": stream,
            "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000},
        },
        "mulaw",
    ),
    "Exotel": Dialect(
        "stream_sid",
        lambda stream, call: {
            "stream_sid": stream,
            "call_sid": call,
            "media_format": {"encoding": "audio/x-raw", "sample_rate": "8000"},
        },
        "pcm",
    ),
}
"""The carriers whose streams are JSON with base64 audio."""


class BinaryLine:
    """Vonage, or Asterisk's chan_websocket: binary audio at 16 kHz, the rest as JSON."""

    path = "/v1/phone"
    rate = 16_000

    def __init__(self, wire: str, number: int) -> None:
        self.wire = wire
        self._number = number

    def opening(self) -> Sequence[Frame]:
        """Return the message that announces the audio."""
        if self.wire == "Vonage":
            return (json.dumps({"event": "websocket:connected", "content-type": "audio/l16;rate=16000"}),)
        about = {"connection_id": f"c{self._number}", "channel_id": f"pbx-{self._number}"}
        return (json.dumps({"event": "MEDIA_START", **about, "format": "slin16", "ptime": 20}),)

    def audio(self, pcm: bytes) -> Sequence[Frame]:
        """Return the audio in frames of 20 ms."""
        starts = range(0, len(pcm), SLIN16_FRAME_BYTES)
        return [pcm[first : first + SLIN16_FRAME_BYTES] for first in starts]

    def take(self, frame: Frame) -> FromAgent:
        """Return what a message contains."""
        if isinstance(frame, bytes):
            return FromAgent(frame)
        message = json.loads(frame)
        match message.get("action") or message.get("command"):
            case "notify":
                return FromAgent(mark=message["payload"]["mark"])
            case "MARK_MEDIA":
                return FromAgent(mark=message["correlation_id"])
            case "clear" | "FLUSH_MEDIA":
                return FromAgent(cleared=True)
        return NOTHING_NEW

    def played(self, mark: str) -> Sequence[Frame]:
        """Return the notice that a mark was played."""
        if self.wire == "Vonage":
            return (json.dumps({"event": "websocket:notify", "payload": {"mark": mark}}),)
        return (json.dumps({"event": "MEDIA_MARK_PROCESSED", "correlation_id": mark}),)

    def digit(self, key: str) -> Sequence[Frame]:
        """Return the message for a key."""
        event = "websocket:dtmf" if self.wire == "Vonage" else "DTMF_END"
        return (json.dumps({"event": event, "digit": key, "duration": 200}),)

    def stop(self) -> Sequence[Frame]:
        """Return nothing: closing the socket hangs up."""
        return ()


class AudioSocketLine:
    """Asterisk's AudioSocket: packets over TCP."""

    wire = "AudioSocket"
    path = ""
    rate = 8_000

    def __init__(self, number: int) -> None:
        self._uuid = number.to_bytes(16, "big")

    def opening(self) -> Sequence[Frame]:
        """Return the packet with the call's identifier."""
        return (packet(UUID, self._uuid),)

    def audio(self, pcm: bytes) -> Sequence[Frame]:
        """Return packets of 20 ms."""
        pieces = (pcm[first : first + TWENTY_MS_BYTES] for first in range(0, len(pcm), TWENTY_MS_BYTES))
        return [packet(AUDIO_PACKET, piece) for piece in pieces]

    def take(self, frame: Frame) -> FromAgent:
        """Return the audio in a packet."""
        return FromAgent(frame[3:]) if isinstance(frame, bytes) and frame[0] == AUDIO_PACKET else NOTHING_NEW

    def played(self, mark: str) -> Sequence[Frame]:
        """Return nothing: there are no marks."""
        return ()

    def digit(self, key: str) -> Sequence[Frame]:
        """Return the packet for a key."""
        return (packet(DTMF, key.encode("ascii")),)

    def stop(self) -> Sequence[Frame]:
        """Return the packet that hangs up."""
        return (packet(HANG_UP),)


SPOKEN_WIRES: dict[str, Callable[[int], SoakLine]] = {
    "realtime": lambda number: RealtimeLine(),
    "page": lambda number: RealtimeLine(page=True),
    "pcm": lambda number: PcmLine(),
    "Twilio": lambda number: TwilioLine("Twilio", number),
    "Telnyx": lambda number: TwilioLine("Telnyx", number),
    "Plivo": lambda number: TwilioLine("Plivo", number),
    "Exotel": lambda number: TwilioLine("Exotel", number),
    "Vonage": lambda number: BinaryLine("Vonage", number),
    "Asterisk": lambda number: BinaryLine("Asterisk", number),
    "AudioSocket": lambda number: AudioSocketLine(number),
}
"""Makes the line of a wire for the call with this number."""
