"""The Wyoming protocol without any I/O: turns bytes into events, and events into bytes.

Written after the README of the package ``wyoming`` 1.10 (github.com/OHF-Voice/wyoming). The server does not
use that package: it buffers as many bytes as a client announces, and closes the connection without an error
message where it cannot parse them. The tests use it as a client.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from rejoinder.agent.wires.json_limits import excess
from rejoinder.pipeline import ProtocolError

MAX_HEADER = MAX_DATA = 2**16
"""Most bytes of an event's first line, and of the JSON after it. The longest text needs fewer."""
MAX_EVENT_VALUES = 1024
"""Most members of objects and entries of lists in either."""
MAX_PAYLOAD = 2**20
"""Most bytes of audio in one event: half a minute at 16 kHz. Home Assistant sends about 30 ms at a time."""


@dataclass(frozen=True, slots=True)
class Event:
    """One message of either side: its type, its data, and audio."""

    type: str
    data: dict[str, Any] = field(default_factory=dict)
    payload: bytes = b""


@dataclass(frozen=True, slots=True)
class _Header:
    type: str
    data: dict[str, Any]
    data_length: int
    payload_length: int


class Events:
    """Splits a stream of bytes into events. It buffers at most one event."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._header: _Header | None = None

    def feed(self, data: bytes) -> Iterator[Event]:
        """Take bytes; yield the events that are now complete. After a ProtocolError, do not call it again."""
        self._rest += data
        while (event := self._next()) is not None:
            yield event

    def _next(self) -> Event | None:
        if self._header is None:
            end = self._rest.find(b"\n")
            if end > MAX_HEADER or (end < 0 and len(self._rest) > MAX_HEADER):
                raise ProtocolError(f"an event begins with a line of at most {MAX_HEADER} bytes", "too-long")
            if end < 0:
                return None
            self._header = _header(self._take(end + 1))
        header = self._header
        if len(self._rest) < header.data_length + header.payload_length:
            return None
        self._header = None
        fields = _object(self._take(header.data_length)) if header.data_length else {}
        return Event(header.type, {**header.data, **fields}, self._take(header.payload_length))

    def _take(self, count: int) -> bytes:
        taken = bytes(self._rest[:count])
        del self._rest[:count]
        return taken


def encode(event: Event) -> bytes:
    """Return the bytes of an event."""
    header: dict[str, Any] = {"type": event.type}
    data = json.dumps(event.data).encode() if event.data else b""
    if data:
        header["data_length"] = len(data)
    if event.payload:
        header["payload_length"] = len(event.payload)
    return json.dumps(header).encode() + b"\n" + data + event.payload


def text(data: dict[str, Any], name: str, most: int) -> str:
    """Return a text in an event's data, "" where it is missing. most: characters. Raises ProtocolError."""
    value = data.get(name)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ProtocolError(f"{name} has to be a text", "invalid")
    if len(value) > most:
        raise ProtocolError(f"{name} has {len(value)} characters, of at most {most}", "too-long")
    return value.encode("utf-8", "replace").decode()  # replaces unpaired surrogates


def whole(data: dict[str, Any], name: str, least: int, most: int) -> int:
    """Return a whole number in an event's data, from ``least`` to ``most``. Raises ProtocolError."""
    value = data.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
        raise ProtocolError(f"{name} has to be a whole number from {least} to {most}", "invalid")
    return value


def _header(line: bytes) -> _Header:
    fields = _object(line)
    if not isinstance(type_ := fields.get("type"), str):
        raise ProtocolError("an event needs a type", "invalid")
    if not isinstance(data := fields.get("data") or {}, dict):
        raise ProtocolError("data has to be an object", "invalid")
    lengths = [
        0 if fields.get(name) is None else whole(fields, name, 0, most)
        for name, most in (("data_length", MAX_DATA), ("payload_length", MAX_PAYLOAD))
    ]
    return _Header(type_, data, *lengths)


def _object(written: bytes) -> dict[str, Any]:
    try:
        text = written.decode()
        if reason := excess(text, MAX_EVENT_VALUES):
            raise ProtocolError(f"this JSON is too large to read here: {reason}", "too-long")
        fields = json.loads(text)
    except (ValueError, RecursionError):
        raise ProtocolError("this is no JSON", "invalid") from None
    if not isinstance(fields, dict):
        raise ProtocolError("this is no JSON object", "invalid")
    return fields
