"""Items of client messages: messages, tool calls, and tool results."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rejoinder.pipeline import Entry, Key, ProtocolError

MAX_RECORDING = 2_000_000
"""Most base64 characters of an item's audio: 31 s at 24 kHz, the largest of the formats."""
TEXT_PARTS = frozenset(("input_text", "output_text", "text"))
"""Types of content parts that hold text."""
CALL_ID = Field(pattern="^[a-zA-Z0-9_-]+$", max_length=64)
"""The constraints on the id of a tool call."""


class Base(BaseModel):
    """The base of objects that are echoed to the client. Unknown fields are kept and have no effect."""

    model_config = ConfigDict(extra="allow")


class Part(BaseModel):
    """A part of a message: text, or audio with its transcript."""

    type: Literal["input_text", "output_text", "text", "input_audio", "output_audio"]
    text: str | None = None
    transcript: str | None = None
    audio: str | None = Field(None, max_length=MAX_RECORDING)

    @model_validator(mode="after")
    def _has_something(self) -> Part:
        if self.type in TEXT_PARTS and self.text is None:
            raise ValueError("text is missing")
        if self.type == "output_audio" and self.transcript is None:
            raise ValueError("transcript is missing: what the agent is to have said")
        if self.type == "input_audio" and self.transcript is None and not self.audio:
            raise ValueError("audio or transcript is missing")
        return self

    @property
    def words(self) -> str | None:
        """The text of the part, None for audio that needs a transcript."""
        return self.text if self.type in TEXT_PARTS else self.transcript

    def as_part(self, role: str) -> dict[str, Any]:
        """Return the part for an event to the client: with the type that fits the role, without audio."""
        kind = "audio" if self.type.endswith("audio") else "text"
        direction = "output" if role == "assistant" else "input"
        return {"type": f"{direction}_{kind}", "text" if kind == "text" else "transcript": self.words}


class _Item(BaseModel):
    id: str | None = Field(None, min_length=1, max_length=64)


class MessageItem(_Item):
    """Something that was said or typed."""

    type: Literal["message"]
    role: Literal["user", "assistant", "system"]
    content: list[Part] = Field(min_length=1, max_length=64)

    @property
    def recording(self) -> str | None:
        """The audio to transcribe (base64), None where there is none.

        Raises ProtocolError where it is not the only content of an item of the user.
        """
        if not any(part.words is None for part in self.content):
            return None
        if len(self.content) > 1 or self.role != "user":
            reason = "audio without a transcript has to be the only content of an item of the user"
            raise ProtocolError(reason, "invalid_value", "item.content")
        return self.content[0].audio

    def as_item(self) -> dict[str, Any]:
        """Return the fields of the item for an event to the client."""
        return {
            "type": "message",
            "role": self.role,
            "content": [part.as_part(self.role) for part in self.content],
        }

    def entry(self, key: Key | None = None) -> Entry:
        """Return the history entry of the item."""
        return Entry(self.role, " ".join(filter(None, (part.words for part in self.content))), key)


class CallItem(_Item):
    """A tool call."""

    type: Literal["function_call"]
    call_id: str = CALL_ID
    name: str = Field(min_length=1, max_length=64)
    arguments: str = ""

    def as_item(self) -> dict[str, Any]:
        """Return the fields of the item for an event to the client."""
        return self.model_dump(exclude={"id"})

    def entry(self, key: Key | None = None) -> Entry:
        """Return the history entry of the item."""
        return Entry("call", self.arguments, key, call=self.call_id, name=self.name)


class ResultItem(_Item):
    """The result of a tool call."""

    type: Literal["function_call_output"]
    call_id: str = CALL_ID
    output: str

    def as_item(self) -> dict[str, Any]:
        """Return the fields of the item for an event to the client."""
        return self.model_dump(exclude={"id"})

    def entry(self, key: Key | None = None) -> Entry:
        """Return the history entry of the item."""
        return Entry("tool", self.output, key, call=self.call_id)


class Reference(BaseModel):
    """A reference to an item of the conversation, in a response's own input."""

    type: Literal["item_reference"]
    id: str = Field(max_length=512)


Item = Annotated[MessageItem | CallItem | ResultItem, Field(discriminator="type")]
Input = Annotated[MessageItem | CallItem | ResultItem | Reference, Field(discriminator="type")]
