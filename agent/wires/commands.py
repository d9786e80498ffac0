"""What a client may want of its session, whatever wire it said it on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rejoinder.pipeline import Entry, Key, Options, ReplyRequest


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
    """Typed words for the history, at its end."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class AddItem:
    """Something for the history, behind another entry; at the beginning where ``after`` is None."""

    entry: Entry
    after: Key | None


@dataclass(frozen=True, slots=True)
class AddRecording:
    """Audio of the user for the history, 16 kHz 16-bit mono, in which the words are still to be found.

    told: what to tell the client about them: the words, the seconds of audio, and why there are none.
    """

    pcm: bytes
    key: Key
    after: Key | None
    told: Callable[[str, float, str], list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Remove:
    """Take something out of the history."""

    key: Key


@dataclass(frozen=True, slots=True)
class Respond:
    """Reply now; ``asked`` is what is to be different."""

    asked: ReplyRequest | None


@dataclass(frozen=True, slots=True)
class Interrupt:
    """Stop the reply, or that one beside the conversation."""

    aside: int | None = None


@dataclass(frozen=True, slots=True)
class Truncate:
    """Only ``seconds`` of a reply were played."""

    turn: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Configure:
    """The session's options have changed."""

    options: Options


@dataclass(frozen=True, slots=True)
class HangUp:
    """The call is over, for this reason."""

    reason: str


Command = (
    Hear
    | EndTurn
    | Forget
    | AddText
    | AddItem
    | AddRecording
    | Remove
    | Respond
    | Interrupt
    | Truncate
    | Configure
    | HangUp
)
