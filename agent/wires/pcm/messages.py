"""What a client of ``/v1/pcm`` may say in JSON, and which rates it may ask for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StrictBool, TypeAdapter, ValidationError

from rejoinder.agent.complaints import complaint
from rejoinder.agent.wires.json_limits import excess
from rejoinder.pipeline import Options, ProtocolError

LOWEST, HIGHEST, STEP = 8_000, 48_000, 25
"""Hertz that are spoken here, and what they are multiples of: it bounds the resampler's filter."""
MAX_AUDIO = 2**20
"""Bytes of audio in one message: 10 s at the highest rate."""
MAX_TEXT = 2**16
"""Characters of a JSON message."""
MAX_VALUES = 64
"""Members of a message; it has 4 at most."""


class _Words(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Text(_Words):
    """Words that were typed instead of spoken; the agent answers them."""

    type: Literal["text"]
    text: str = Field(min_length=1, max_length=MAX_TEXT)


class Reply(_Words):
    """The agent is to say something: to greet, for instance."""

    type: Literal["reply"]


class Stop(_Words):
    """The agent is to fall silent."""

    type: Literal["interrupt"]


class End(_Words):
    """The user's turn is over, whatever the silence: a button was let go."""

    type: Literal["end_turn"]


class Played(_Words):
    """So many milliseconds of a reply have been played by now."""

    type: Literal["played"]
    turn: int = Field(ge=1, le=2**31)
    ms: int = Field(ge=0, le=86_400_000)


class Set(_Words):
    """What is to be different from now on; what is not named stays."""

    type: Literal["options"]
    instructions: str | None = None
    detect_turns: StrictBool | None = Field(None, description="False: turns end with end_turn only")
    interrupt: StrictBool | None = Field(None, description="False: the agent finishes first")

    def over(self, now: Options) -> Options:
        """Return the options with what is set here."""
        return replace(
            now,
            instructions=now.instructions if self.instructions is None else self.instructions,
            examples=now.examples if self.instructions is None else (),
            detect_turns=now.detect_turns if self.detect_turns is None else self.detect_turns,
            interrupt_response=now.interrupt_response if self.interrupt is None else self.interrupt,
        )


Said = Text | Reply | Stop | End | Played | Set
_SAID: TypeAdapter[Said] = TypeAdapter(Annotated[Said, Field(discriminator="type")])


def rate_of(query: Mapping[str, str], name: str, default: int) -> int:
    """Return a rate that an address asks for. Raises ProtocolError."""
    text = query.get(name, str(default))
    if text.isascii() and text.isdigit() and len(text) < 6:
        if LOWEST <= int(text) <= HIGHEST and int(text) % STEP == 0:
            return int(text)
    reason = f"{name}={text[:20]}: {LOWEST} to {HIGHEST} hertz are spoken here, in steps of {STEP}"
    raise ProtocolError(reason, "invalid_rate")


def flag_of(query: Mapping[str, str], name: str) -> bool:
    """Return whether an address asks for something. Raises ProtocolError."""
    if (said := query.get(name, "false")) not in ("true", "false"):
        raise ProtocolError(f"{name}={said[:20]}: it is true or false", "invalid_value")
    return said == "true"


def too_long(size: int, binary: bool) -> ProtocolError:
    """Return what is wrong with a message of so many bytes or characters."""
    if binary:
        return ProtocolError(f"{size} bytes of audio; {MAX_AUDIO} are the most", "invalid_audio")
    return ProtocolError(f"{size} characters; {MAX_TEXT} are the most", "invalid_message")


def parse(text: str) -> Said:
    """Return what a text message says. Raises ProtocolError."""
    if len(text) > MAX_TEXT:
        raise too_long(len(text), binary=False)
    if reason := excess(text, MAX_VALUES):
        raise ProtocolError(reason, "invalid_message")
    try:
        return _SAID.validate_json(text)
    except ValidationError as error:
        wrong = complaint(error, (), 1)
        raise ProtocolError(wrong.sentence(".".join(wrong.place)), "invalid_message") from None
