"""What a Realtime server tells its client, as types: one function from the wire's dictionaries, no I/O."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any

Raw = dict[str, Any]
"""An event as it came: every event below has it as ``raw``."""


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """The user has begun to speak: what still waits in the loudspeaker is to be thrown away.

    item: of the user's turn. at_ms: milliseconds of the audio that was sent.
    """

    item: str
    at_ms: int
    raw: Raw = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class SpeechStopped:
    """The user's turn is over, ``at_ms`` milliseconds into the audio that was sent."""

    item: str
    at_ms: int
    raw: Raw = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class UserDelta:
    """More words of the user, while they are spoken; to be put behind those that came before."""

    item: str
    text: str
    raw: Raw = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class UserSaid:
    """The whole of what the user said in a turn; empty where it had no words."""

    item: str
    text: str
    raw: Raw = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class ReplyStarted:
    """The agent has begun a reply."""

    reply: str
    raw: Raw = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class AgentDelta:
    """More words of the agent, spoken or written; to be put behind those that came before."""

    reply: str
    item: str
    text: str
    raw: Raw = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class AgentSaid:
    """The whole of what a reply said, or of what was sent of it until it was cut."""

    reply: str
    item: str
    text: str
    raw: Raw = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class AgentAudio:
    """Sound to be played behind what came before: mono, 16-bit, 24 kHz, unless the session says otherwise.

    It comes as fast as the server sends, which may be faster than it can be played.
    """

    reply: str
    item: str
    pcm: bytes
    raw: Raw = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """The agent wants a tool run: ``arguments`` is JSON; answer with ``Call.return_result``."""

    reply: str
    call: str
    name: str
    arguments: str
    raw: Raw = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class ReplyDone:
    """A reply is over: completed, cancelled (by the user or by you), incomplete or failed.

    All of it has been sent; it may not have been played yet. Where a lost call begins anew, a reply that was
    in progress has failed: the client itself says so, just before ``Reconnected``.
    """

    reply: str
    status: str
    raw: Raw = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class OutputPaused:
    """Hold what waits in the loudspeaker: somebody may have begun to speak; where ``hold=true`` was asked."""

    item: str | None
    raw: Raw = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class OutputResumed:
    """It was nothing: go on playing with the very sample at which you stopped."""

    item: str | None
    raw: Raw = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Failed:
    """The server did not do what it was asked, or could not; the call goes on. ``code`` may be empty."""

    message: str
    code: str
    raw: Raw = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Reconnected:
    """The socket was lost, and the call goes on over another one.

    resumed: whether the agent remembers the conversation. missed: whether something was said meanwhile that
    does not come any more; then throw away what waits in the loudspeaker. Where the call is resumed and
    nothing was missed, only the microphone has a gap.
    """

    resumed: bool
    missed: bool
    raw: Raw = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Other:
    """An event of the wire that has no type of its own here."""

    type: str
    raw: Raw = field(default_factory=dict, repr=False, compare=False)


CallEvent = (
    SpeechStarted
    | SpeechStopped
    | UserDelta
    | UserSaid
    | ReplyStarted
    | AgentDelta
    | AgentSaid
    | AgentAudio
    | ToolCalled
    | ReplyDone
    | OutputPaused
    | OutputResumed
    | Failed
    | Reconnected
    | Other
)
"""Whatever a call may tell."""


def read(raw: Raw) -> CallEvent:
    """Return an event of the wire as its type. Raises KeyError where it lacks what its type needs."""
    # Servers of before the GA version say response.audio.delta and response.text.delta.
    name = raw["type"].replace("response.audio", "response.output_audio")
    match name.replace("response.text", "response.output_text"):
        case "input_audio_buffer.speech_started":
            return SpeechStarted(raw["item_id"], raw["audio_start_ms"], raw)
        case "input_audio_buffer.speech_stopped":
            return SpeechStopped(raw["item_id"], raw["audio_end_ms"], raw)
        case "conversation.item.input_audio_transcription.delta":
            return UserDelta(raw["item_id"], raw["delta"], raw)
        case "conversation.item.input_audio_transcription.completed":
            return UserSaid(raw["item_id"], raw["transcript"], raw)
        case "response.created":
            return ReplyStarted(raw["response"]["id"], raw)
        case "response.output_audio_transcript.delta" | "response.output_text.delta":
            return AgentDelta(raw["response_id"], raw["item_id"], raw["delta"], raw)
        case "response.output_audio_transcript.done":
            return AgentSaid(raw["response_id"], raw["item_id"], raw["transcript"], raw)
        case "response.output_text.done":
            return AgentSaid(raw["response_id"], raw["item_id"], raw["text"], raw)
        case "response.output_audio.delta":
            return AgentAudio(raw["response_id"], raw["item_id"], base64.b64decode(raw["delta"]), raw)
        case "response.function_call_arguments.done":
            return ToolCalled(raw["response_id"], raw["call_id"], raw.get("name", ""), raw["arguments"], raw)
        case "response.done":
            return ReplyDone(raw["response"]["id"], raw["response"]["status"], raw)
        case "rejoinder.output_paused":
            return OutputPaused(raw["item_id"], raw)
        case "rejoinder.output_resumed":
            return OutputResumed(raw["item_id"], raw)
        case "error":
            return Failed(raw["error"]["message"], raw["error"].get("code") or "", raw)
    return Other(raw["type"], raw)


def broken_off(reply: str, message: str) -> CallEvent:
    """Return how a reply ends whose server does not know it any more, as a server would tell it."""
    cause = {"type": "server_error", "code": "connection_lost", "message": message}
    details = {"type": "failed", "error": cause}
    response = {"id": reply, "object": "realtime.response", "status": "failed", "status_details": details}
    return read({"type": "response.done", "response": response})
