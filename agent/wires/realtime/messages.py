"""Client messages of the OpenAI Realtime protocol, validated.

Shapes as in OpenAI's published GA schema, https://platform.openai.com/docs/api-reference/realtime.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field, TypeAdapter, ValidationError

from rejoinder.agent.complaints import complaint
from rejoinder.agent.wires.long_messages import MAX_TEXT, Base64
from rejoinder.agent.wires.realtime.formats import Format
from rejoinder.agent.wires.realtime.shapes import Base, Input, Item
from rejoinder.agent.wires.realtime.tools import Choice, Function, MostTokens
from rejoinder.agent.wires.voices import CustomVoice
from rejoinder.pipeline import ProtocolError

MAX_ID = 512
"""Most characters of an identifier that a client chose."""
MAX_INPUT = 400
"""Most items of a response's own input, which replaces the conversation."""
MAX_METADATA = 256
"""Most entries of a response's metadata. OpenAI takes 16."""
LONGEST_MS = 24 * 60 * 60 * 1000
"""Largest position in an item's audio, in milliseconds: one day."""


class _Message(BaseModel):
    event_id: str | None = Field(None, max_length=MAX_ID)


class SessionUpdate(_Message):
    """Change part of the session object."""

    type: Literal["session.update"]
    session: dict[str, Any]


class AudioAppend(_Message):
    """More of the user's audio, in base64."""

    type: Literal["input_audio_buffer.append"]
    audio: str


@dataclass(frozen=True, slots=True)
class LongAudioAppend:
    """An ``AudioAppend`` whose audio is too long to be decoded in one step."""

    audio: Base64
    event_id: str | None


class AudioCommit(_Message):
    """End the user's turn."""

    type: Literal["input_audio_buffer.commit"]


class AudioClear(_Message):
    """Drop the audio that was not committed."""

    type: Literal["input_audio_buffer.clear"]


class ItemCreate(_Message):
    """Add an item: at the end of the conversation, behind another item, or at the beginning."""

    type: Literal["conversation.item.create"]
    previous_item_id: str | None = Field(None, max_length=MAX_ID)
    item: Item


class ItemRetrieve(_Message):
    """Ask for an item."""

    type: Literal["conversation.item.retrieve"]
    item_id: str = Field(max_length=MAX_ID)


class ItemDelete(_Message):
    """Remove an item from the conversation."""

    type: Literal["conversation.item.delete"]
    item_id: str = Field(max_length=MAX_ID)


class ItemTruncate(_Message):
    """Report how much of a reply was played."""

    type: Literal["conversation.item.truncate"]
    item_id: str = Field(max_length=MAX_ID)
    content_index: Literal[0] = 0
    audio_end_ms: int = Field(ge=0, le=LONGEST_MS)


class ResponseOutput(Base):
    """The output audio of a single response: format and voice."""

    format: Format | None = None
    voice: str | CustomVoice | None = None


class ResponseAudio(Base):
    """The audio of a single response."""

    output: ResponseOutput | None = None


def _few(metadata: Any) -> Any:
    if isinstance(metadata, dict) and len(metadata) > MAX_METADATA:
        raise ValueError(f"has too many entries: {MAX_METADATA} is the most")
    return metadata


class ResponseParams(Base):
    """The options of a single response. Each one overrides the session's."""

    instructions: str | None = None
    metadata: Annotated[dict[str, str] | None, BeforeValidator(_few)] = None
    conversation: Literal["auto", "none"] = "auto"
    output_modalities: list[Literal["audio", "text"]] | None = Field(default=None, min_length=1, max_length=1)
    input: Annotated[list[Input], Field(max_length=MAX_INPUT, fail_fast=True)] | None = None
    tools: Annotated[list[Function], Field(fail_fast=True)] | None = None
    tool_choice: Choice | None = None
    parallel_tool_calls: bool | None = None
    max_output_tokens: MostTokens | None = None
    audio: ResponseAudio | None = None

    @property
    def format(self) -> Format | None:
        """The format of the response's audio, None for the session's."""
        return self.audio.output.format if self.audio and self.audio.output else None

    @property
    def voice(self) -> str | CustomVoice | None:
        """The response's voice, None for the session's."""
        return self.audio.output.voice if self.audio and self.audio.output else None


class ResponseCreate(_Message):
    """Ask for a reply now."""

    type: Literal["response.create"]
    response: ResponseParams | None = None


class ResponseCancel(_Message):
    """Stop the reply."""

    type: Literal["response.cancel"]
    response_id: str | None = Field(None, max_length=MAX_ID)


class RecordingStart(_Message):
    """Begin to record the call. announce: speak the announcement first, if the server has one."""

    type: Literal["rejoinder.recording.start"]
    announce: bool = True


class RecordingStop(_Message):
    """End the recording of the call."""

    type: Literal["rejoinder.recording.stop"]


ControlMessage = (
    SessionUpdate
    | AudioCommit
    | AudioClear
    | ItemCreate
    | ItemDelete
    | ItemRetrieve
    | ItemTruncate
    | ResponseCreate
    | ResponseCancel
    | RecordingStart
    | RecordingStop
)
"""A client's message without audio to append."""
ClientMessage = ControlMessage | AudioAppend
CLIENT_MESSAGE: TypeAdapter[ClientMessage] = TypeAdapter(
    Annotated[ClientMessage, Field(discriminator="type")]
)
"""Validates a client's message by its ``type``."""


def check_size(value: Any, param: str | None) -> None:
    """Raise ProtocolError for a value that is too large to keep, or has numbers that JSON cannot express."""
    try:
        size = len(json.dumps(value, allow_nan=False))
    except ValueError as error:
        raise ProtocolError(str(error), "invalid_value", param) from None
    if size > MAX_TEXT:
        raise ProtocolError(f"{size} characters, which is more than {MAX_TEXT}", "invalid_value", param)


UNION_TAGS = frozenset(
    (
        *("server_vad", "semantic_vad", "str", "int", "constrained-int", "dict[str,any]"),
        *("audio/pcm", "audio/pcmu", "audio/pcma"),
        *(
            "message",
            "function_call",
            "function_call_output",
            "item_reference",
            "Named",
            "CustomVoice",
            "word",
            "object",
        ),
    )
)
"""Pydantic's names for the branches of the unions here. They appear in an error's path but are no fields."""


def explain(error: ValidationError, root: str | None = None) -> ProtocolError:
    """Return the first of pydantic's errors as a ProtocolError.

    root: the path of the validated object, "" for none; None where it is a whole client message.
    """
    # The first part of a message's path is the union's tag, which is no field.
    wrong = complaint(error, UNION_TAGS, 1 if root is None else 0)
    param = ".".join([root, *wrong.place] if root else wrong.place) or None
    code = "unsupported_content" if wrong.unread else "invalid_value"
    if wrong.kind in ("missing", "union_tag_not_found"):
        code = "missing_required_parameter"
    elif wrong.kind == "union_tag_invalid" and param == "type":
        code = "unknown_event"
    return ProtocolError(wrong.sentence(param), code, param)
