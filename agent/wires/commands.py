"""Commands to a session, and their results. Every wire protocol turns its client's messages into commands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rejoinder.agent.recording.changes import RecordingChange
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
class Restore:
    """The session takes over the history of a conversation that another process has begun."""

    entries: Sequence[Entry]


@dataclass(frozen=True, slots=True)
class AddRecording:
    """The session transcribes audio of the user (16 kHz, 16-bit, mono) and inserts the text into the history.

    The result is a ``RecordingTranscribed``.
    """

    pcm: bytes
    key: Key
    after: Key | None


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
    """The session stops its reply, or the reply with the turn number ``out_of_band``."""

    out_of_band: int | None = None


@dataclass(frozen=True, slots=True)
class Truncate:
    """The session keeps only the first ``seconds`` of a reply in the history: no more was played.

    The result is a ``Truncated``.
    """

    turn: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Configure:
    """The session uses these options from now on."""

    options: Options


@dataclass(frozen=True, slots=True)
class ReadMore:
    """The wire has more of a long message: call its ``read_more``. It is the last of a list.

    So other calls run in between, and the wire decodes no faster than the session takes the audio.
    """


@dataclass(frozen=True, slots=True)
class HangUp:
    """The call ends, for this reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class Record:
    """The call begins or ends a recording. announce: speak the announcement first, if there is one.

    The result is a ``RecordingChange``, once it has begun or ended.
    """

    begin: bool
    announce: bool = True


Command = (
    Hear
    | EndTurn
    | Forget
    | AddText
    | AddItem
    | Restore
    | AddRecording
    | Remove
    | Respond
    | Interrupt
    | Truncate
    | Configure
    | ReadMore
    | HangUp
    | Record
)


@dataclass(frozen=True, slots=True)
class Truncated:
    """The result of ``Truncate``.

    text: the part of the reply that the user heard, None if the session no longer knows the reply.
    """

    turn: int
    text: str | None


@dataclass(frozen=True, slots=True)
class RecordingTranscribed:
    """The result of ``AddRecording``.

    seconds: length of the audio. error: the message for the client, "" after a success.
    """

    key: Key
    text: str
    seconds: float
    error: str = ""


Result = Truncated | RecordingTranscribed | RecordingChange
