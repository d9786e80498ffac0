"""Asterisk's AudioSocket without any I/O: packets over TCP, and the playback queue on the server's side.

Written after docs.asterisk.org/Configuration/Channel-Drivers/AudioSocket. Asterisk does not queue audio, so
the server sends one packet every 20 ms, never ahead. It therefore knows exactly which packets were played,
held and cleared.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterable, Mapping

from rejoinder.agent.wires.phone.carrier import Audio, Digit, Format, Frame, Played, Received, Stopped
from rejoinder.pipeline import Overloaded, ProtocolError

HANG_UP = 0x00
"""Packet kind: either side ends the call."""
UUID = 0x01
"""Packet kind: the call's identifier, 16 bytes."""
DTMF = 0x03
"""Packet kind: a key, one byte."""
AUDIO_PACKET = 0x10
"""Packet kind: audio at 8 kHz."""
ERROR = 0xFF
"""Packet kind: an error in Asterisk."""
SPOKEN = {AUDIO_PACKET: 8000, 0x12: 16000, 0x13: 24000, 0x16: 48000}
"""Sample rate in hertz of each supported audio packet kind: 16-bit PCM, little-endian."""
TICK_SECONDS = 0.02
"""Interval between two packets."""
MOST_QUEUED = 200
"""Most packets that wait to be played: four seconds. A reply is made at most a fifth of a second ahead."""


def packet(kind: int, payload: bytes = b"") -> bytes:
    """Return a packet: its kind (1 byte), the length of its payload (2 bytes, big-endian) and the payload."""
    return bytes((kind,)) + len(payload).to_bytes(2, "big") + payload


class Packets:
    """Splits a stream of bytes into packets."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Take bytes; return the packets that are now complete."""
        self._rest += data
        whole = []
        while len(self._rest) >= 3 and len(self._rest) >= (end := 3 + int.from_bytes(self._rest[1:3], "big")):
            whole.append(self._rest[:end])
            self._rest = self._rest[end:]
        return whole


class AudioSocket:
    """One call. Its text messages go to the server's own queue: "mark NAME", "clear", "hold", "release"."""

    name = "AudioSocket"
    number = ""
    shortest_ms = 20
    clear: Frame | None = "clear"
    hold: Frame | None = "hold"
    release: Frame | None = "release"

    def __init__(self, kind: int) -> None:
        if kind not in SPOKEN:
            raise ProtocolError(f"audio of kind {kind:#04x}; 8, 16, 24 and 48 kHz are spoken here")
        self.kind = kind
        self.id = ""
        self.parameters: Mapping[str, str] = {}
        self.format_in = self.format_out = Format("pcm", SPOKEN[kind])
        self.step = self.format_out.size(20)

    def receive(self, frame: Frame) -> Iterable[Received]:
        """Take one packet, or a mark that the queue returns; return what it contains.

        Raises ProtocolError.
        """
        if isinstance(frame, str):
            return [Played(frame)]
        kind, payload = frame[0], frame[3:]
        if kind == self.kind:
            return [Audio(payload)]
        if kind == DTMF and len(payload) == 1:
            return [Digit(payload.decode("latin-1"))]
        if kind in (HANG_UP, ERROR):
            return [Stopped()]
        if kind == UUID:
            return []
        raise ProtocolError(f"a packet of kind {kind:#04x} with {len(payload)} bytes")

    def media(self, audio: bytes) -> list[Frame]:
        """Return the packets for audio, 20 ms each."""
        return [packet(self.kind, piece) for piece in self.format_out.cut(audio)]

    def mark(self, name: str) -> Frame | None:
        """Return the text that the queue returns when all packets before it were played."""
        return f"mark {name}"


def misbegun(first: bytes) -> str:
    """Return what is wrong with the first bytes of a connection, "" where they are right so far.

    A call begins with its UUID of 16 bytes. ``started`` handles calls that are hung up at once.
    """
    if first[:1] and first[0] not in (UUID, HANG_UP, ERROR):
        return f"it begins with {first[:3]!r} instead of the call's UUID"
    size = int.from_bytes(first[1:3], "big")
    if first[:1] == bytes((UUID,)) and len(first) >= 3 and size != 16:
        return f"a UUID of {size} bytes, not 16"
    return ""


def started(whole: bytes) -> AudioSocket | None:
    """Return the call that a packet begins, None if its audio format is not known yet.

    Raises ProtocolError.
    """
    if whole[0] in (UUID, DTMF):
        return None
    if whole[0] in (HANG_UP, ERROR):
        raise ProtocolError("it was hung up before its start")
    return AudioSocket(whole[0])


def identifier(whole: bytes) -> str:
    """Return the call's identifier in a packet, "" for packets without one."""
    return str(uuid.UUID(bytes=whole[3:])) if whole[0] == UUID and len(whole) == 19 else ""


class Queue:
    """Packets and marks that wait to be played. Call ``next`` every 20 ms."""

    def __init__(self) -> None:
        self._waiting: deque[Frame] = deque()
        self._held = False

    def take(self, frame: Frame) -> None:
        """Queue a packet or a mark, or carry out "clear", "hold" or "release". Raises Overloaded."""
        match frame:
            case "clear":
                self._waiting.clear()
                self._held = False
            case "hold" | "release":
                self._held = frame == "hold"
            case _ if len(self._waiting) >= MOST_QUEUED:
                raise Overloaded("Asterisk does not take its audio")
            case _:
                self._waiting.append(frame)

    def next(self) -> tuple[bytes | None, list[str]]:
        """Return the next packet, None where there is none, and the names of the marks before it."""
        marks: list[str] = []
        while self._waiting and not self._held:
            frame = self._waiting.popleft()
            if isinstance(frame, bytes):
                return frame, marks
            marks.append(frame.removeprefix("mark "))
        return None, marks
