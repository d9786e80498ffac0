"""What a client may want of its session, whatever wire it said it on."""

from __future__ import annotations

from dataclasses import dataclass

from rejoinder.pipeline import Options


@dataclass(frozen=True, slots=True)
class Hear:
    """Audio of the user, 16 kHz 16-bit mono."""

    pcm: bytes


@dataclass(frozen=True, slots=True)
class EndTurn:
    """The user's turn ends here."""


@dataclass(frozen=True, slots=True)
class Forget:
    """Drop the user's unfinished turn."""


@dataclass(frozen=True, slots=True)
class AddText:
    """Typed words for the history."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class Respond:
    """Reply now, with other instructions if there are any."""

    instructions: str | None


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Stop the reply."""


@dataclass(frozen=True, slots=True)
class Truncate:
    """Only ``seconds`` of a reply were played."""

    turn: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Configure:
    """The session's options have changed."""

    options: Options


Command = Hear | EndTurn | Forget | AddText | Respond | Interrupt | Truncate | Configure
