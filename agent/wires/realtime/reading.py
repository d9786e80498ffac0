"""Parsing of a client's message in the OpenAI Realtime protocol: its limits, and its audio."""

from __future__ import annotations

from typing import Any

from pydantic_core import from_json

from rejoinder.agent.wires.json_limits import early, excess
from rejoinder.agent.wires.long_messages import MAX_TEXT, Long
from rejoinder.agent.wires.realtime.messages import MAX_ID, ClientMessage, parse
from rejoinder.agent.wires.realtime.shapes import MAX_RECORDING
from rejoinder.pipeline import ProtocolError

MAX_VALUES = 2**13
"""Most members of objects and entries of lists in a message. 128 tools with schemas have half as many."""
APPEND = "input_audio_buffer.append"
"""Type of the event that appends audio."""
CREATE = "conversation.item.create"
"""Type of the event that adds an item."""


class Reading:
    """One text message. A message that cannot be parsed may still have an ``event_id``."""

    def __init__(self, frame: str | Long) -> None:
        self._frame = Long.of(frame) if isinstance(frame, str) and len(frame) > MAX_TEXT else frame
        self._given: Any = None

    @property
    def event_id(self) -> str | None:
        """The client's id of the message, None where it has none or it was not found."""
        given = self._given.get("event_id") if isinstance(self._given, dict) else None
        if self._given is None:
            given = early(self._frame if isinstance(self._frame, str) else self._frame.text, "event_id")
        return given if isinstance(given, str) and len(given) <= MAX_ID else None

    def message(self) -> ClientMessage:
        """Return the parsed message. Raises ProtocolError."""
        frame = self._frame
        text = frame if isinstance(frame, str) else frame.text
        if isinstance(frame, Long) and frame.too_long:
            raise _too_long(frame.size)
        if reason := excess(text, MAX_VALUES):
            raise ProtocolError(reason, "invalid_json")
        try:
            self._given = from_json(text, allow_inf_nan=False)
        except ValueError as error:
            raise ProtocolError(f"not JSON: {error}", "invalid_json") from None
        if isinstance(frame, Long):
            _put_back(frame, self._given)
            if not frame.is_found:
                raise _too_long(frame.size)
        return parse(self._given)


def _too_long(size: int) -> ProtocolError:
    reason = f"{size} bytes, which is more than {MAX_TEXT}: only audio in base64 may be longer"
    return ProtocolError(reason, "invalid_value")


def _put_back(frame: Long, given: Any) -> None:
    """Put the audio that was cut out of a long message back into its fields. Raises ProtocolError."""
    if not isinstance(given, dict):
        return
    if given.get("type") == APPEND and isinstance(written := given.get("audio"), str):
        given["audio"] = frame.audio(written) or written
        return
    item = given.get("item") if given.get("type") == CREATE else None
    content = item.get("content") if isinstance(item, dict) else None
    for number, part in enumerate(content if isinstance(content, list) else []):
        if isinstance(part, dict) and isinstance(written := part.get("audio"), str):
            if audio := frame.audio(written):
                if len(audio) > MAX_RECORDING:
                    param = f"item.content.{number}.audio"
                    reason = f"{param}: has too many characters: {MAX_RECORDING} is the most"
                    raise ProtocolError(reason, "invalid_value", param)
                part["audio"] = b"".join(audio.pieces).decode()
