"""What telephone carriers say and are told, whatever they call it: what their wires have in common."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import pybase64

from rejoinder.agent.wires import g711
from rejoinder.agent.wires.json_limits import excess
from rejoinder.pipeline import ProtocolError

Frame = str | bytes
"""One WebSocket message: text or binary."""

MAX_AUDIO = 2**16
"""Bytes of audio in one message of a carrier; they send 20 to 100 ms, that is at most 4,800."""
MAX_TEXT = 2**17
"""Characters of one message; the longest, a start with many parameters, has some thousands."""
MAX_VALUES = 1024
"""Members of objects and entries of lists in one."""
PARAMETERS = 40
"""So many parameters of a call are kept, and so many hundred characters of each."""


@dataclass(frozen=True, slots=True)
class Format:
    """How audio is written on a wire, in one direction; ``rate`` in hertz."""

    encoding: Literal["mulaw", "alaw", "pcm"]
    rate: int

    @property
    def width(self) -> int:
        """Bytes of a sample."""
        return 2 if self.encoding == "pcm" else 1

    def size(self, ms: int) -> int:
        """Return the bytes of so many milliseconds."""
        return self.rate * ms // 1000 * self.width

    def cut(self, audio: bytes, ms: int = 20) -> list[bytes]:
        """Return audio in pieces of so many milliseconds; the last may be shorter."""
        size = self.size(ms)
        return [audio[first : first + size] for first in range(0, len(audio), size)]

    def decode(self, data: bytes) -> bytes:
        """Return 16-bit PCM. Raises ProtocolError."""
        if len(data) % self.width or len(data) > MAX_AUDIO:
            raise ProtocolError(f"{len(data)} bytes are no {self.encoding} audio of a telephone line")
        return data if self.encoding == "pcm" else g711.decode(data, self.encoding)

    def encode(self, pcm: bytes) -> bytes:
        """Return 16-bit PCM as the wire has it."""
        return pcm if self.encoding == "pcm" else g711.encode(pcm, self.encoding)

    def silence(self, size: int) -> bytes:
        """Return so many bytes of silence."""
        return self.encode(bytes(2 * size // self.width))


@dataclass(frozen=True, slots=True)
class Audio:
    """The caller's audio as the wire has it."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Digit:
    """The caller has pressed a key."""

    key: str


@dataclass(frozen=True, slots=True)
class Played:
    """All audio before a mark has been played, or was cleared."""

    mark: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """The carrier ends the stream."""


Received = Audio | Digit | Played | Stopped


class Carrier(Protocol):
    """One stream of one carrier. Holds no clock and does no I/O.

    name: of the carrier. id: what it calls the call, "" where it does not say.
    heard, spoken: formats of the caller's and of the agent's audio.
    step: audio is sent in multiples of so many bytes. shortest_ms: what is sent at a time, at least.
    clear: the message that drops all audio that has not been played; None where there is no such.
    hold, release: make the carrier keep what it has not played, and play on; None where it cannot.
    parameters: what the operator gave the call along.
    number: of the caller's telephone, "" where the carrier does not say.
    """

    name: str
    id: str
    number: str
    format_in: Format
    format_out: Format
    step: int
    shortest_ms: int
    clear: Frame | None
    hold: Frame | None
    release: Frame | None
    parameters: Mapping[str, str]

    def receive(self, frame: Frame) -> Iterable[Received]:
        """Take one message. Raises ProtocolError."""

    def media(self, audio: bytes) -> list[Frame]:
        """Return the messages that queue audio."""

    def mark(self, name: str) -> Frame | None:
        """Return the message that asks to be told when all audio before it has been played; None: no way."""


@dataclass(frozen=True, slots=True)
class Json:
    """A message that is a JSON object; ``event`` names its kind."""

    event: str
    fields: Mapping[str, Any] = field(repr=False)

    @staticmethod
    def parse(frame: Frame) -> Json:
        """Read a text message. Raises ProtocolError."""
        if isinstance(frame, bytes):
            raise ProtocolError("audio goes inside of JSON here, in text messages")
        if len(frame) > MAX_TEXT:
            raise too_long(len(frame))
        if reason := excess(frame, MAX_VALUES):
            raise ProtocolError(reason)
        try:
            fields = json.loads(frame)
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"no JSON: {error}"[:100]) from None
        if not isinstance(fields, dict) or not isinstance(fields.get("event"), str):
            raise ProtocolError("no JSON object with an event")
        return Json(fields["event"], fields)

    def find(self, *path: str) -> str | None:
        """Return the text or number at a path as text, None if there is none."""
        here = self._at(*path)
        known = isinstance(here, str | int | float) and not isinstance(here, bool)
        return str(here) if known else None

    def get(self, *path: str) -> str:
        """Return the text at a path. Raises ProtocolError."""
        if (found := self.find(*path)) is None:
            raise ProtocolError(f"{self.event[:30]} without {'.'.join(path)}")
        return found

    def audio(self, *path: str) -> Audio:
        """Return the audio at a path. Raises ProtocolError."""
        payload = self.get(*path)
        try:
            return Audio(pybase64.b64decode(payload, validate=True))
        except ValueError:
            raise ProtocolError(f"{'.'.join(path)} is no base64") from None

    def texts(self, *path: str) -> dict[str, str]:
        """Return the object at a path as texts; what is no text or number, or too much, is left out."""
        here = self._at(*path)
        names = list(here)[:PARAMETERS] if isinstance(here, dict) else []
        return {clean(name): clean(value) for name in names if (value := self.find(*path, name)) is not None}

    def _at(self, *path: str) -> Any:
        here: Any = self.fields
        for key in path:
            here = here.get(key) if isinstance(here, dict) else None
        return here


def too_long(size: int) -> ProtocolError:
    """Return what is wrong with a message of so many characters."""
    return ProtocolError(f"a message of {size} characters; {MAX_TEXT} are the most")


def clean(text: str) -> str:
    """Return text of the outside at a length that can be kept, and without halves of characters."""
    return text[: 100 * PARAMETERS].encode("utf-8", "replace").decode()
