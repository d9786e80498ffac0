"""Reads a client's message in the OpenAI Realtime protocol: its limits, its fields, and its long audio."""

from __future__ import annotations

from typing import Any

from pydantic import ValidationError
from pydantic_core import from_json

from rejoinder.agent.wires.json_limits import early, excess
from rejoinder.agent.wires.long_messages import MAX_TEXT, Base64, Long
from rejoinder.agent.wires.realtime.messages import (
    CLIENT_MESSAGE,
    MAX_ID,
    AudioAppend,
    ClientMessage,
    ItemCreate,
    LongAudioAppend,
    check_size,
    explain,
)
from rejoinder.agent.wires.realtime.shapes import MAX_RECORDING
from rejoinder.pipeline import ProtocolError

MAX_REALTIME_VALUES = 2**13
"""Most members of objects and entries of lists in a message. 128 tools with schemas have half as many."""
APPEND = "input_audio_buffer.append"
"""Type of the event that appends audio."""
CREATE = "conversation.item.create"
"""Type of the event that adds an item."""


class UnreadableMessage(ProtocolError):
    """A message that cannot be read.

    event_id: the client's id of the message, None where it has none or it was not found.
    """

    def __init__(self, error: ProtocolError, event_id: str | None) -> None:
        super().__init__(str(error), error.code, error.param)
        self.event_id = event_id


def read_message(frame: str | Long) -> ClientMessage | LongAudioAppend:
    """Return a parsed and validated message. Raises UnreadableMessage."""
    if isinstance(frame, str) and len(frame) > MAX_TEXT:
        frame = Long.of(frame)
    text, given, audio = frame if isinstance(frame, str) else frame.text, None, None
    try:
        if isinstance(frame, Long) and frame.too_long:
            raise _too_long(frame.size)
        if reason := excess(text, MAX_REALTIME_VALUES):
            raise ProtocolError(reason, "invalid_json")
        try:
            given = from_json(text, allow_inf_nan=False)
        except ValueError as error:
            raise ProtocolError(f"not JSON: {error}", "invalid_json") from None
        if isinstance(frame, Long):
            audio = _put_back(frame, given)
            if not frame.is_found:
                raise _too_long(frame.size)
        try:
            message = CLIENT_MESSAGE.validate_python(given)
        except ValidationError as error:
            raise explain(error) from None
        if isinstance(message, ItemCreate):  # its audio has its own limit and is not kept
            check_size(message.item.as_item(), None)
        elif not isinstance(message, AudioAppend):
            check_size(given, None)
    except ProtocolError as error:
        raise UnreadableMessage(error, _event_id(given, text)) from error
    return LongAudioAppend(audio, message.event_id) if audio else message


def _event_id(given: Any, text: str) -> str | None:
    """Return the id of a message. given: the parsed message, None where it cannot be parsed."""
    found = given.get("event_id") if isinstance(given, dict) else None
    if given is None:
        found = early(text, "event_id")
    return found if isinstance(found, str) and len(found) <= MAX_ID else None


def _too_long(size: int) -> ProtocolError:
    reason = f"{size} bytes, which is more than {MAX_TEXT}: only audio in base64 may be longer"
    return ProtocolError(reason, "invalid_value")


def _put_back(frame: Long, given: Any) -> Base64 | None:
    """Return the audio that was cut out of a long append; put that of an item back into it.

    Raises ProtocolError.
    """
    if not isinstance(given, dict):
        return None
    if given.get("type") == APPEND and isinstance(written := given.get("audio"), str):
        return frame.audio(written)
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
    return None
