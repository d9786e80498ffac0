"""Asterisk's AudioSocket without any I/O: packets over TCP, and the queue that plays at our end.

Written after docs.asterisk.org/Configuration/Channel-Drivers/AudioSocket. Asterisk does not
queue for us: a packet goes out every 20 ms, never ahead. So what has been heard, is held, and was cleared is
known here to the packet.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterable, Mapping

from rejoinder.agent.wires.phone.carrier import Audio, Digit, Format, Frame, Played, Received, Stopped
from rejoinder.pipeline import Overloaded, ProtocolError

HANG_UP, UUID, DTMF, AUDIO, ERROR = 0x00, 0x01, 0x03, 0x10, 0xFF
SPOKEN = {AUDIO: 8000, 0x12: 16000, 0x13: 24000, 0x16: 48000}
"""Hertz of the kinds of audio packets that are spoken here: 16-bit PCM, little-endian."""
TICK_SECONDS = 0.02
MOST_QUEUED = 200
"""Packets that may wait to be played: four seconds. A reply is made at most a fifth of one ahead."""


def packet(kind: int, payload: bytes = b"") -> bytes:
    """Return a packet: its kind, the length of its payload (big-endian) and the payload."""
    return bytes((kind,)) + len(payload).to_bytes(2, "big") + payload


class Packets:
    """A stream of bytes that becomes packets, as they come whole."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[bytes]:
        """Return the packets that are whole by now."""
        self._rest += data
        whole = []
        while len(self._rest) >= 3 and len(self._rest) >= (end := 3 + int.from_bytes(self._rest[1:3], "big")):
            whole.append(self._rest[:end])
            self._rest = self._rest[end:]
        return whole


class AudioSocket:
    """One call. Text messages are those between us and our own queue: mark NAME, clear, hold, release."""

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
        """Take one packet, or a mark that our queue returns. Raises ProtocolError."""
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
        """Return packets of 20 ms."""
        return [packet(self.kind, piece) for piece in self.format_out.cut(audio)]

    def mark(self, name: str) -> Frame | None:
        """Return what our queue returns when all before it has been played."""
        return f"mark {name}"


def misbegun(first: bytes) -> str:
    """Return what is wrong with the first bytes of a connection, "" where nothing is, or not yet.

    A call begins with its UUID, of 16 bytes; that it is hung up at once is for ``started`` to say.
    """
    if first[:1] and first[0] not in (UUID, HANG_UP, ERROR):
        return f"it begins with {first[:3]!r} instead of the call's UUID"
    size = int.from_bytes(first[1:3], "big")
    if first[:1] == bytes((UUID,)) and len(first) >= 3 and size != 16:
        return f"a UUID of {size} bytes, not 16"
    return ""


def started(whole: bytes) -> AudioSocket | None:
    """Return the call that a packet begins, None if that is not told yet. Raises ProtocolError."""
    if whole[0] in (UUID, DTMF):
        return None
    if whole[0] in (HANG_UP, ERROR):
        raise ProtocolError("it was hung up before its start")
    return AudioSocket(whole[0])


def identifier(whole: bytes) -> str:
    """Return the identifier of the call that a packet tells, "" for one that tells none."""
    return str(uuid.UUID(bytes=whole[3:])) if whole[0] == UUID and len(whole) == 19 else ""


class Queue:
    """What waits to be played; ``next`` is asked every 20 ms."""

    def __init__(self) -> None:
        self._waiting: deque[Frame] = deque()
        self._held = False

    def take(self, frame: Frame) -> None:
        """Queue a packet or a mark, or do what a word says. Raises Overloaded."""
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
        """Return the packet that is due, if there is one, and the marks before it, which come back."""
        marks: list[str] = []
        while self._waiting and not self._held:
            frame = self._waiting.popleft()
            if isinstance(frame, bytes):
                return frame, marks
            marks.append(frame.removeprefix("mark "))
        return None, marks
