"""The common part of all telephone wires: the messages, the audio formats and the protocol of a carrier."""

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

MAX_CARRIER_AUDIO = 2**16
"""Most bytes of audio in one message. Carriers send 20 to 100 ms, at most 4,800 bytes."""
MAX_CARRIER_MESSAGE = 2**18
"""Most characters of one message. The longest, a start with many parameters, has a few thousand."""
MAX_CARRIER_VALUES = 1024
"""Most members of objects and entries of lists in one message."""
PARAMETERS = 40
"""Most parameters of a call that are kept. Each keeps at most 100 times as many characters."""


@dataclass(frozen=True, slots=True)
class Format:
    """An audio format of a wire, in one direction. rate: in hertz."""

    encoding: Literal["mulaw", "alaw", "pcm"]
    rate: int

    @property
    def width(self) -> int:
        """Bytes per sample."""
        return 2 if self.encoding == "pcm" else 1

    def size(self, ms: int) -> int:
        """Return the bytes in ``ms`` milliseconds."""
        return self.rate * ms // 1000 * self.width

    def cut(self, audio: bytes, ms: int = 20) -> list[bytes]:
        """Return audio in pieces of ``ms`` milliseconds; the last may be shorter."""
        size = self.size(ms)
        return [audio[first : first + size] for first in range(0, len(audio), size)]

    def decode(self, data: bytes) -> bytes:
        """Return audio of the wire as 16-bit PCM.

        Raises ProtocolError for half a sample, or too much audio.
        """
        if len(data) % self.width or len(data) > MAX_CARRIER_AUDIO:
            raise ProtocolError(f"{len(data)} bytes are no {self.encoding} audio of a telephone line")
        return data if self.encoding == "pcm" else g711.decode(data, self.encoding)

    def encode(self, pcm: bytes) -> bytes:
        """Return 16-bit PCM in the format of the wire."""
        return pcm if self.encoding == "pcm" else g711.encode(pcm, self.encoding)

    def silence(self, size: int) -> bytes:
        """Return ``size`` bytes of silence."""
        return self.encode(bytes(2 * size // self.width))


@dataclass(frozen=True, slots=True)
class Audio:
    """The caller's audio in the format of the wire."""

    data: bytes


@dataclass(frozen=True, slots=True)
class Digit:
    """The caller pressed a key."""

    key: str


@dataclass(frozen=True, slots=True)
class Played:
    """All audio before a mark was played, or cleared."""

    mark: str


@dataclass(frozen=True, slots=True)
class Stopped:
    """The carrier ended the stream."""


Received = Audio | Digit | Played | Stopped


class Carrier(Protocol):
    """One stream of one carrier. It has no clock and does no I/O.

    name: of the carrier. id: its identifier of the call, "" where it has none.
    format_in, format_out: of the caller's and of the agent's audio.
    step: audio is sent in multiples of this, in bytes. shortest_ms: least audio in one message, in
    milliseconds. clear: the message that drops all unplayed audio, None where the carrier has none. hold,
    release: the messages that pause and resume playback, None where the carrier has none. parameters: the
    operator's parameters of the call. number: the caller's telephone number, "" where the carrier does not
    send it.
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
        """Take one message; return what it contains. Raises ProtocolError."""

    def media(self, audio: bytes) -> list[Frame]:
        """Return the messages that queue audio."""

    def mark(self, name: str) -> Frame | None:
        """Return the message that asks for a notice when all audio before it was played, None for none."""


@dataclass(frozen=True, slots=True)
class Json:
    """A message that is a JSON object. event: its type."""

    event: str
    fields: Mapping[str, Any] = field(repr=False)

    @staticmethod
    def parse(frame: Frame) -> Json:
        """Return a parsed text message. Raises ProtocolError."""
        if isinstance(frame, bytes):
            raise ProtocolError("audio goes inside of JSON here, in text messages")
        if len(frame) > MAX_CARRIER_MESSAGE:
            raise too_long(len(frame))
        if reason := excess(frame, MAX_CARRIER_VALUES):
            raise ProtocolError(f"no JSON to be read here: {reason}")
        try:
            fields = json.loads(frame)
        except (ValueError, RecursionError) as error:
            raise ProtocolError(f"no JSON: {error}"[:100]) from None
        if not isinstance(fields, dict) or not isinstance(fields.get("event"), str):
            raise ProtocolError("no JSON object with an event")
        return Json(fields["event"], fields)

    def find(self, *path: str) -> str | None:
        """Return the text or number at a path as text, None where there is neither."""
        here = self._at(*path)
        known = isinstance(here, str | int | float) and not isinstance(here, bool)
        return str(here) if known else None

    def get(self, *path: str) -> str:
        """Return the text or number at a path as text. Raises ProtocolError where there is neither."""
        if (found := self.find(*path)) is None:
            raise ProtocolError(f"{self.event[:30]} without {'.'.join(path)}")
        return found

    def audio(self, *path: str) -> Audio:
        """Return the base64 audio at a path. Raises ProtocolError."""
        payload = self.get(*path)
        try:
            return Audio(pybase64.b64decode(payload, validate=True))
        except ValueError:
            raise ProtocolError(f"{'.'.join(path)} is no base64") from None

    def texts(self, *path: str) -> dict[str, str]:
        """Return the members of the object at a path as texts.

        Members that are neither text nor number are left out, and those beyond ``PARAMETERS``.
        """
        here = self._at(*path)
        names = list(here)[:PARAMETERS] if isinstance(here, dict) else []
        return {clean(name): clean(value) for name in names if (value := self.find(*path, name)) is not None}

    def _at(self, *path: str) -> Any:
        here: Any = self.fields
        for key in path:
            here = here.get(key) if isinstance(here, dict) else None
        return here


def too_long(size: int) -> ProtocolError:
    """Return the error for a message that is too long. size: its characters."""
    return ProtocolError(f"a message of {size} characters; {MAX_CARRIER_MESSAGE} are the most")


def clean(text: str) -> str:
    """Return a carrier's text, cut to the length that is kept, and without unpaired surrogates."""
    return text[: 100 * PARAMETERS].encode("utf-8", "replace").decode()
