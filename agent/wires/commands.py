"""Commands to a session. Every wire protocol turns its client's messages into these."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rejoinder.pipeline import Entry, Key, Options, ReplyRequest


@dataclass(frozen=True, slots=True)
class Hear:
    """The session takes this audio of the user: 16 kHz, 16-bit, mono."""

    pcm: bytes


@dataclass(frozen=True, slots=True)
class EndTurn:
    """The session ends the user's turn."""


@dataclass(frozen=True, slots=True)
class Forget:
    """The session drops the user's unfinished turn."""


@dataclass(frozen=True, slots=True)
class AddText:
    """The session appends typed text to the history."""

    role: str
    text: str


@dataclass(frozen=True, slots=True)
class AddItem:
    """The session inserts an entry into the history, behind ``after``; None stands for the beginning."""

    entry: Entry
    after: Key | None


@dataclass(frozen=True, slots=True)
class AddRecording:
    """The session transcribes audio of the user (16 kHz, 16-bit, mono) and inserts the text into the history.

    on_transcribed: returns the messages to the client. It takes the text, the seconds of audio, and the error
    message, which is "" after a success.
    """

    pcm: bytes
    key: Key
    after: Key | None
    on_transcribed: Callable[[str, float, str], list[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Remove:
    """The session removes an entry from the history."""

    key: Key


@dataclass(frozen=True, slots=True)
class Respond:
    """The session replies now.

    ``request`` overrides the session's options for this reply; None: no change.
    """

    request: ReplyRequest | None


@dataclass(frozen=True, slots=True)
class Interrupt:
    """The session stops its reply, or the out-of-band reply with the turn number ``aside``."""

    aside: int | None = None


@dataclass(frozen=True, slots=True)
class Truncate:
    """The session keeps only the first ``seconds`` of a reply in the history: no more was played."""

    turn: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Configure:
    """The session uses these options from now on."""

    options: Options


@dataclass(frozen=True, slots=True)
class HangUp:
    """The call ends, for this reason."""

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
