"""JSON messages of ``/v1/pcm`` clients, and the parameters of its URL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, TypeAdapter, ValidationError

from rejoinder.agent.complaints import complaint
from rejoinder.agent.wires.json_limits import excess
from rejoinder.pipeline import Options, ProtocolError

LOWEST = 8_000
"""Lowest sample rate, in hertz."""
HIGHEST = 48_000
"""Highest sample rate, in hertz."""
STEP = 25
"""Sample rates are multiples of this, in hertz: that bounds the resampler's filter."""
MAX_AUDIO = 2**20
"""Most bytes of audio in one message: 10 s at the highest rate."""
MAX_REQUEST = 2**16
"""Most characters of a JSON message."""
MAX_REQUEST_VALUES = 64
"""Most members of a message. Valid messages have at most 4."""


class _Words(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Text(_Words):
    """Typed text of the user. The agent answers it."""

    type: Literal["text"]
    text: str = Field(min_length=1, max_length=MAX_REQUEST)


class StartReply(_Words):
    """The agent speaks now, for instance to greet."""

    type: Literal["reply"]


class Stop(_Words):
    """The agent stops its reply."""

    type: Literal["interrupt"]


class End(_Words):
    """The user's turn ends now, such as when a push-to-talk button is released."""

    type: Literal["end_turn"]


class Played(_Words):
    """Reports how many milliseconds of a reply have been played so far."""

    type: Literal["played"]
    turn: int = Field(ge=1, le=2**31)
    ms: int = Field(ge=0, le=86_400_000)


class Set(_Words):
    """Changes options from now on. Options that are None keep their values."""

    type: Literal["options"]
    instructions: str | None = None
    detect_turns: StrictBool | None = Field(None, description="False: turns end with end_turn only")
    interrupt: StrictBool | None = Field(None, description="False: the agent finishes first")

    def over(self, now: Options) -> Options:
        """Return ``now`` with the options of this message."""
        return replace(
            now,
            instructions=now.instructions if self.instructions is None else self.instructions,
            examples=now.examples if self.instructions is None else (),
            detect_turns=now.detect_turns if self.detect_turns is None else self.detect_turns,
            interrupt_response=now.interrupt_response if self.interrupt is None else self.interrupt,
        )


Said = Text | StartReply | Stop | End | Played | Set
_SAID: TypeAdapter[Said] = TypeAdapter(Annotated[Said, Field(discriminator="type")])


def rate_of(query: Mapping[str, str], name: str, default: int) -> int:
    """Return a sample rate from a URL's query, in hertz. Raises ProtocolError."""
    text = query.get(name, str(default))
    if text.isascii() and text.isdigit() and len(text) < 6:
        if LOWEST <= int(text) <= HIGHEST and int(text) % STEP == 0:
            return int(text)
    reason = f"{name}={text[:20]}: {LOWEST} to {HIGHEST} hertz are spoken here, in steps of {STEP}"
    raise ProtocolError(reason, "invalid_rate")


def flag_of(query: Mapping[str, str], name: str) -> bool:
    """Return a true or false from a URL's query; false where it is missing. Raises ProtocolError."""
    if (said := query.get(name, "false")) not in ("true", "false"):
        raise ProtocolError(f"{name}={said[:20]}: it is true or false", "invalid_value")
    return said == "true"


def too_long(size: int, binary: bool) -> ProtocolError:
    """Return the error for a message that is too long. size: its bytes or characters."""
    if binary:
        return ProtocolError(f"{size} bytes of audio; {MAX_AUDIO} are the most", "invalid_audio")
    return ProtocolError(f"{size} characters; {MAX_REQUEST} are the most", "invalid_message")


def parse(text: str) -> Said:
    """Return the parsed text message. Raises ProtocolError."""
    if len(text) > MAX_REQUEST:
        raise too_long(len(text), binary=False)
    if reason := excess(text, MAX_REQUEST_VALUES):
        raise ProtocolError(reason, "invalid_message")
    try:
        return _SAID.validate_json(text)
    except ValidationError as error:
        wrong = complaint(error, (), 1)
        raise ProtocolError(wrong.sentence(".".join(wrong.place)), "invalid_message") from None
