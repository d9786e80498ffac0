"""The bytes of a call on each wire and between the two tiers, counted on messages as they are sent."""

from __future__ import annotations

import json
import math
import pickle
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pybase64
from websockets.frames import Frame, Opcode

from rejoinder.agent.wires.audiosocket.protocol import packet
from rejoinder.models.ray.messages import TurnAudio, Work
from rejoinder.pipeline.audio.chunk import RATE, AudioChunk

FRAMES_PER_SECOND = 50
"""Frames of audio in a second, 20 ms each: the most on any wire."""
PACKET_BYTES = 52
"""Headers of a packet: IPv4 20, TCP 20, its timestamps 12 (RFC 9293, RFC 7323)."""
SEGMENT_BYTES = 1500 - PACKET_BYTES
"""Bytes of a message in one packet on Ethernet."""
TLS_BYTES = 22
"""What TLS 1.3 adds to a record: header 5, type 1, tag 16 (RFC 8446, section 5.2)."""
HTTP2_BYTES = 9 + 5
"""What a gRPC message adds: a header of HTTP/2 and its own length (RFC 9113, section 4.1)."""
LONGEST_JUDGED_S = 8.0
"""Seconds of audio that a turn model is asked about, at most."""
FASTEST_VOICE_RATE = 24_000
"""Rate of the voices' audio in hertz, the highest."""


@dataclass(frozen=True, slots=True)
class CallTraffic:
    """Bytes per second of a call, with all headers: to our servers, and from them while the agent speaks."""

    received: float
    sent: float


def wires() -> dict[str, CallTraffic]:
    """Return the traffic of one call on each wire. It is the most: both sides send audio all the time."""
    heard, mulaw = bytes(2 * 24_000 // FRAMES_PER_SECOND), bytes(8_000 // FRAMES_PER_SECOND)
    narrow = bytes(2 * 8_000 // FRAMES_PER_SECOND)
    delta = {
        "type": "response.output_audio.delta",
        "event_id": "event_" + "0" * 16,
        "response_id": "resp_" + "0" * 16,
        "item_id": "item_" + "0" * 16,
        "output_index": 0,
        "content_index": 0,
    }
    append = {"type": "input_audio_buffer.append"}
    media = {"event": "media", "streamSid": "MZ" + "0" * 32, "media": {"payload": _b64(mulaw)}}
    return {
        "realtime": _json({**append, "audio": _b64(heard)}, {**delta, "delta": _b64(heard)}),
        "realtime, G.711": _json({**append, "audio": _b64(mulaw)}, {**delta, "delta": _b64(mulaw)}),
        "twilio": _json(media, media),
        "audiosocket": CallTraffic(*[FRAMES_PER_SECOND * in_packets(len(packet(0x10, narrow)))] * 2),
        "pcm": _websocket(heard, heard, Opcode.BINARY),
    }


def between_tiers(role: str, speech_s: float, voice_s: float) -> float:
    """Return the bytes of a turn between call servers and a model, whose replies but audio are tiny.

    speech_s: seconds of the caller's words. voice_s: seconds of the answer. Each request is pickled as Ray
    pickles it.
    """
    work = Work(0.25, True, False, "0" * 16)
    if role == "stt":
        half = bytes(RATE)  # each partial transcript sends what is new, about every half second
        request = TurnAudio("0" * 32, 1, 0, 0, half, False, work)
        return 2.0 * speech_s * _request(request)
    if role == "turn":
        return _request((np.zeros(int(RATE * min(speech_s, LONGEST_JUDGED_S)), np.float32), "", work))
    if role == "tts":
        return 2.0 * voice_s * _request(AudioChunk(bytes(FASTEST_VOICE_RATE), FASTEST_VOICE_RATE, 0))
    return 0.0


def in_packets(size: int) -> int:
    """Return the bytes of a message of ``size`` bytes with the headers of all its packets."""
    return size + math.ceil(size / SEGMENT_BYTES) * PACKET_BYTES


def _request(content: object) -> float:
    return in_packets(len(pickle.dumps(content, protocol=5)) + HTTP2_BYTES)


def _json(received: Mapping[str, object], sent: Mapping[str, object]) -> CallTraffic:
    return _websocket(json.dumps(received).encode(), json.dumps(sent).encode(), Opcode.TEXT)


def _websocket(received: bytes, sent: bytes, kind: Opcode) -> CallTraffic:
    """Return the traffic over TLS. Only clients mask their frames (RFC 6455, section 5.1)."""
    heard, said = Frame(kind, received).serialize(mask=True), Frame(kind, sent).serialize(mask=False)
    return CallTraffic(*(FRAMES_PER_SECOND * in_packets(len(frame) + TLS_BYTES) for frame in (heard, said)))


def _b64(data: bytes) -> str:
    return pybase64.b64encode(data).decode("ascii")
