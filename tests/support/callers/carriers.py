"""The carriers' side of each telephone wire, built from their documents and not from our code.

``start`` is what a carrier sends first, ``audio``, ``digit`` and ``played`` what it sends during a call, and
``take`` says what a message to it asks for: ("media", PCM), ("mark", name), ("clear", None), ("hold", None)
or ("release", None). PCM is 16-bit at ``rate``.
"""

from __future__ import annotations

import base64
import io
import json
from typing import Any, ClassVar, Literal

import numpy as np
import soundfile

Frame = str | bytes
ReplyRequest = tuple[str, Any]


def coded(pcm: bytes, subtype: str) -> bytes:
    """Write G.711 with libsndfile."""
    file = io.BytesIO()
    soundfile.write(file, np.frombuffer(pcm, "<i2"), 8000, format="RAW", subtype=subtype)
    return file.getvalue()


def decoded(data: bytes, subtype: str) -> bytes:
    """Read G.711 with libsndfile."""
    raw: dict[str, Any] = {"format": "RAW", "subtype": subtype, "samplerate": 8000, "channels": 1}
    return bytes(soundfile.read(io.BytesIO(data), dtype="int16", **raw)[0].astype("<i2").tobytes())


def b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


class TwilioSim:
    """Twilio: numbers are strings; a clear returns all marks that are out."""

    name = "Twilio"
    rate = 8000
    clears: Literal["returns marks", "drops marks", "not at all"] = "returns marks"
    parameters: ClassVar[dict[str, str]] = {}

    def __init__(self) -> None:
        self.sequence = 0
        self.chunk = 0

    def message(self, event: str, **fields: Any) -> str:
        self.sequence += 1
        about = {"sequenceNumber": str(self.sequence), "streamSid": "MZ18ad3ab5a668481ce02b83e7395059f0"}
        return json.dumps({"event": event, **about, **fields})

    def start(self) -> list[Frame]:
        start = {
            "accountSid": "AC00000000000000000000000000000000",
            "streamSid": "MZ18ad3ab5a668481ce02b83e7395059f0",
            "callSid": "CA00000000000000000000000000000000",
            "tracks": ["inbound"],
            "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000, "channels": 1},
            "customParameters": self.parameters,
        }
        connected = json.dumps({"event": "connected", "protocol": "Call", "version": "1.0.0"})
        return [connected, self.message("start", start=start)]

    def audio(self, pcm: bytes) -> list[Frame]:
        self.chunk += 1
        media = {"track": "inbound", "chunk": str(self.chunk), "timestamp": str(20 * self.chunk)}
        return [self.message("media", media={**media, "payload": b64(coded(pcm, "ULAW"))})]

    def digit(self, key: str) -> Frame:
        return self.message("dtmf", dtmf={"track": "inbound_track", "digit": key})

    def played(self, name: str) -> Frame | None:
        return self.message("mark", mark={"name": name})

    def stop(self) -> Frame | None:
        return self.message("stop", stop={"accountSid": "AC0", "callSid": "CA0"})

    def take(self, frame: Frame) -> list[ReplyRequest]:
        assert isinstance(frame, str)
        message = json.loads(frame)
        assert message["streamSid"] == "MZ18ad3ab5a668481ce02b83e7395059f0"
        match message["event"]:
            case "media":
                return [("media", decoded(base64.b64decode(message["media"]["payload"]), "ULAW"))]
            case "mark":
                return [("mark", message["mark"]["name"])]
            case "clear":
                return [("clear", None)]
        raise AssertionError(f"31924: {frame}")


class TelnyxSim(TwilioSim):
    """Telnyx: snake case, A-law from the caller, frames out of order; it takes mu-law."""

    name = "Telnyx"

    def __init__(self) -> None:
        super().__init__()
        self.early: list[Frame] = []

    def message(self, event: str, **fields: Any) -> str:
        self.sequence += 1
        about = {"sequence_number": str(self.sequence), "stream_id": "32DE0DEA-53CB-4B21-89A4-9E1819C043BC"}
        return json.dumps({"event": event, **about, **fields})

    def start(self) -> list[Frame]:
        start = {
            "user_id": "3e6f995f-85f7-4705-9741-53b116d28237",
            "call_control_id": "v2:T02llQxIyaRkhfRKxgAP8nY511EhFLizdvdUKJiSw8d6A9BborherQ",
            "media_format": {"encoding": "PCMA", "sample_rate": 8000, "channels": 1},
            "custom_parameters": self.parameters,
        }
        return [json.dumps({"event": "connected", "version": "1.0.0"}), self.message("start", start=start)]

    def audio(self, pcm: bytes) -> list[Frame]:
        self.chunk += 1
        media = {"track": "inbound", "chunk": str(self.chunk), "timestamp": str(20 * self.chunk)}
        self.early.append(self.message("media", media={**media, "payload": b64(coded(pcm, "ALAW"))}))
        if len(self.early) < 3:
            return []
        third, first, second = self.early[2], self.early[0], self.early[1]
        self.early = []
        return [third, first, second]

    def take(self, frame: Frame) -> list[ReplyRequest]:
        assert isinstance(frame, str)
        message = json.loads(frame)
        if message["event"] == "media":
            return [("media", decoded(base64.b64decode(message["media"]["payload"]), "ULAW"))]
        return [("mark", message["mark"]["name"])] if message["event"] == "mark" else [("clear", None)]


class PlivoSim(TwilioSim):
    """Plivo: numbers are numbers, other verbs, and a checkpoint that was cleared never comes back."""

    name = "Plivo"
    clears = "drops marks"

    def message(self, event: str, **fields: Any) -> str:
        self.sequence += 1
        about = {"sequenceNumber": self.sequence, "streamId": "87654321-4321-4321-4321-cba987654321"}
        return json.dumps({"event": event, **about, **fields})

    def start(self) -> list[Frame]:
        start = {
            "callId": "12345678-1234-1234-1234-123456789abc",
            "streamId": "87654321-4321-4321-4321-cba987654321",
            "accountId": "MAXXXXXXXXXXXXXXXXXX",
            "tracks": ["inbound"],
            "mediaFormat": {"encoding": "audio/x-mulaw", "sampleRate": 8000},
        }
        headers = ";".join(f"{name}={value}" for name, value in self.parameters.items())
        return [json.dumps({"event": "start", "sequenceNumber": 1, "start": start, "extra_headers": headers})]

    def played(self, name: str) -> Frame | None:
        return self.message("playedStream", name=name)

    def stop(self) -> Frame | None:
        return None

    def take(self, frame: Frame) -> list[ReplyRequest]:
        assert isinstance(frame, str)
        message = json.loads(frame)
        match message["event"]:
            case "playAudio":
                media = message["media"]
                assert (media["contentType"], media["sampleRate"]) == ("audio/x-mulaw", 8000)
                return [("media", decoded(base64.b64decode(media["payload"]), "ULAW"))]
            case "checkpoint":
                assert message["streamId"] == "87654321-4321-4321-4321-cba987654321"
                return [("mark", message["name"])]
            case "clearAudio":
                return [("clear", None)]
        raise AssertionError(frame)


class ExotelSim(TwilioSim):
    """Exotel: snake case, 16-bit PCM in messages of 100 ms; it takes multiples of 320 bytes."""

    name = "Exotel"

    def __init__(self) -> None:
        super().__init__()
        self.early = b""

    def message(self, event: str, **fields: Any) -> str:
        self.sequence += 1
        about = {"sequence_number": str(self.sequence), "stream_sid": "MZxxxxxxxxxxxxxxxxxxxxxxxx"}
        return json.dumps({"event": event, **about, **fields})

    def start(self) -> list[Frame]:
        start = {
            "stream_sid": "MZxxxxxxxxxxxxxxxxxxxxxxxx",
            "call_sid": "CAxxxxxxxxxxxxxxxxxxxxxxxx",
            "account_sid": "ACxxxxxxxxxxxxxxxxxxxxxxxx",
            "from": "+919876543210",
            "to": "+918047491899",
            "custom_parameters": self.parameters,
            "media_format": {"encoding": "audio/x-raw", "sample_rate": "8000", "bit_rate": "16"},
        }
        return [json.dumps({"event": "connected"}), self.message("start", start=start)]

    def audio(self, pcm: bytes) -> list[Frame]:
        self.early += pcm
        if len(self.early) < 1600:
            return []
        self.chunk += 1
        media = {"chunk": str(self.chunk), "timestamp": str(100 * self.chunk), "payload": b64(self.early)}
        self.early = b""
        return [self.message("media", media=media)]

    def take(self, frame: Frame) -> list[ReplyRequest]:
        assert isinstance(frame, str)
        message = json.loads(frame)
        assert message["stream_sid"] == "MZxxxxxxxxxxxxxxxxxxxxxxxx"
        if message["event"] == "media":
            pcm = base64.b64decode(message["media"]["payload"])
            assert len(pcm) % 320 == 0
            return [("media", pcm)]
        return [("mark", message["mark"]["name"])] if message["event"] == "mark" else [("clear", None)]


class VonageSim(TwilioSim):
    """Vonage: binary audio at 16 kHz in frames of 20 ms, the rest as JSON."""

    name = "Vonage"
    rate = 16000
    clears = "drops marks"

    def start(self) -> list[Frame]:
        about = {"event": "websocket:connected", "content-type": "audio/l16;rate=16000"}
        return [json.dumps({**about, **self.parameters})]

    def audio(self, pcm: bytes) -> list[Frame]:
        return [pcm]

    def digit(self, key: str) -> Frame:
        return json.dumps({"event": "websocket:dtmf", "digit": key, "duration": 260})

    def played(self, name: str) -> Frame | None:
        return json.dumps({"event": "websocket:notify", "payload": {"mark": name}})

    def stop(self) -> Frame | None:
        return None

    def take(self, frame: Frame) -> list[ReplyRequest]:
        if isinstance(frame, bytes):
            assert len(frame) == 640
            return [("media", frame)]
        message = json.loads(frame)
        if message["action"] == "notify":
            return [("mark", message["payload"]["mark"])]
        assert message == {"action": "clear"}
        return [("clear", None)]


class AsteriskSim(TwilioSim):
    """Asterisk's chan_websocket: binary slin16, and what does not fill a frame is dropped; it can hold."""

    name = "Asterisk"
    rate = 16000
    clears = "drops marks"

    def start(self) -> list[Frame]:
        about = {"connection_id": "c1", "channel": "WebSocket/c1/0x1", "channel_id": "pbx1-123456789.999"}
        media = {"format": "slin16", "optimal_frame_size": 640, "ptime": 20}
        return [json.dumps({"event": "MEDIA_START", **about, **media, "channel_variables": {"A": "b"}})]

    def audio(self, pcm: bytes) -> list[Frame]:
        return [pcm]

    def digit(self, key: str) -> Frame:
        return json.dumps({"event": "DTMF_END", "channel_id": "pbx1-123456789.999", "digit": key})

    def played(self, name: str) -> Frame | None:
        return json.dumps({"event": "MEDIA_MARK_PROCESSED", "channel_id": "pbx1", "correlation_id": name})

    def stop(self) -> Frame | None:
        return None

    def take(self, frame: Frame) -> list[ReplyRequest]:
        if isinstance(frame, bytes):
            return [("media", frame[: len(frame) // 640 * 640])]
        message = json.loads(frame)
        match message["command"]:
            case "MARK_MEDIA":
                return [("mark", message["correlation_id"])]
            case "FLUSH_MEDIA":
                return [("clear", None)]
            case "PAUSE_MEDIA":
                return [("hold", None)]
            case "CONTINUE_MEDIA":
                return [("release", None)]
            case "HANGUP":
                return [("hang up", None)]
        raise AssertionError(frame)


SIMS: list[type[TwilioSim]] = [TwilioSim, TelnyxSim, PlivoSim, ExotelSim, VonageSim, AsteriskSim]
