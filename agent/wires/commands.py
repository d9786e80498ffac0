"""Commands to a session, and their results. Every wire protocol turns its client's messages into commands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
    """The session drops the user's unfinished turn. A turn that ``EndTurn`` has ended is kept."""


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
    """The session appends the history of a conversation that another process has begun."""

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
class ListTools:
    """The call connects to an MCP server by streamable HTTP, and lists its tools.

    label: the client's name of the server. item: identifies this request. public_only: whether it may connect
    to public addresses only. The result is a ``ToolsListed``.
    """

    label: str
    item: str
    url: str
    headers: Mapping[str, str]
    public_only: bool = True


@dataclass(frozen=True, slots=True)
class CallRemoteTool:
    """The call runs a tool of an MCP server. arguments: a JSON object. The result is a ``ToolReturned``."""

    label: str
    tool: str
    arguments: str
    id: str


@dataclass(frozen=True, slots=True)
class ReadMore:
    """The wire has more of a long message: call its ``read_more``. It is the last of a list.

    So other calls run in between, and the wire decodes no faster than the session takes the audio.
    """


@dataclass(frozen=True, slots=True)
class Record:
    """The call begins or ends a recording. announce: speak the announcement first, if there is one.

    The result is a ``RecordingChange``, once it has begun or ended.
    """

    begin: bool
    announce: bool = True


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
    | Restore
    | AddRecording
    | Remove
    | Respond
    | Interrupt
    | Truncate
    | Configure
    | ListTools
    | CallRemoteTool
    | ReadMore
    | Record
    | HangUp
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


@dataclass(frozen=True, slots=True)
class ToolsListed:
    """The result of ``ListTools``.

    tools: in the shape of the MCP specification. error: why there are none, "" after a success.
    """

    label: str
    item: str
    tools: Sequence[dict[str, Any]]
    error: str = ""


@dataclass(frozen=True, slots=True)
class ToolReturned:
    """The result of ``CallRemoteTool``.

    text: the result, or the error for the language model. error: "" after a success, else its kind:
    protocol_error, http_error or tool_execution_error. code: of the first two.
    """

    id: str
    text: str
    error: str = ""
    code: int = 0


Result = Truncated | RecordingTranscribed | ToolsListed | ToolReturned | RecordingChange
