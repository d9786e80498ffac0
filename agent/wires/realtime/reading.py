"""A client's message in the OpenAI Realtime protocol, from its text on: how long it may be, and its audio."""

from __future__ import annotations

from typing import Any

from pydantic_core import from_json

from rejoinder.agent.wires.json_limits import early, excess
from rejoinder.agent.wires.long_messages import MAX_TEXT, Long
from rejoinder.agent.wires.realtime.messages import MAX_ID, ClientMessage, parse
from rejoinder.agent.wires.realtime.shapes import MAX_RECORDING
from rejoinder.pipeline import ProtocolError

MAX_VALUES = 2**13
"""Members of objects and entries of lists in a message: 128 tools with schemas have half as many."""
APPEND, CREATE = "input_audio_buffer.append", "conversation.item.create"


class Reading:
    """One text message. One that is not understood still has an ``event_id``, if that is easy to find."""

    def __init__(self, frame: str | Long) -> None:
        self._frame = Long.of(frame) if isinstance(frame, str) and len(frame) > MAX_TEXT else frame
        self._given: Any = None

    @property
    def event_id(self) -> str | None:
        """The client's id of the message, None where it has none that is known."""
        given = self._given.get("event_id") if isinstance(self._given, dict) else None
        if self._given is None:
            given = early(self._frame if isinstance(self._frame, str) else self._frame.text, "event_id")
        return given if isinstance(given, str) and len(given) <= MAX_ID else None

    def message(self) -> ClientMessage:
        """Return what it says. Raises ProtocolError."""
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
    """Put the audio of a long message in the places that may have some. Raises ProtocolError."""
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
