"""The events of a Realtime server as types, and one function that reads them. No I/O."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Any

Raw = dict[str, Any]
"""An event in its original form. Every event below has it as ``raw``."""


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """The user has begun to speak. Drop the audio that is queued for the loudspeaker.

    item: the item of the user's turn. at_ms: position in the sent audio, in milliseconds.
    """

    item: str
    at_ms: int
    raw: Raw = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class SpeechStopped:
    """The user's turn is over. at_ms: position in the sent audio, in milliseconds."""

    item: str
    at_ms: int
    raw: Raw = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class UserDelta:
    """More words of the user's turn in progress. Append them to the earlier ones."""

    item: str
    text: str
    raw: Raw = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class UserSaid:
    """The final transcript of a user's turn; "" if it has no words."""

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
    """More words of the agent, spoken or written. Append them to the earlier ones."""

    reply: str
    item: str
    text: str
    raw: Raw = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class AgentSaid:
    """The full text of a reply, or of the part that was sent before it was cut."""

    reply: str
    item: str
    text: str
    raw: Raw = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class AgentAudio:
    """Audio of a reply: 16-bit mono at 24 kHz, unless the session sets another format.

    Play it after the earlier audio. It may arrive faster than it plays.
    """

    reply: str
    item: str
    pcm: bytes
    raw: Raw = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """The agent calls a tool. arguments: JSON. Answer with ``Call.return_result``."""

    reply: str
    call: str
    name: str
    arguments: str
    raw: Raw = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class ReplyDone:
    """A reply is over. status: completed, cancelled (by the user or by you), incomplete or failed.

    All of its audio has been sent; some of it may still be queued. If a lost call starts again without its
    conversation, the client itself reports a reply in progress as failed, just before ``Reconnected``.
    calls: number of tools that it calls, here or on the server; another reply then follows.
    """

    reply: str
    status: str
    calls: int = 0
    raw: Raw = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class OutputPaused:
    """The user may have begun to speak: pause the loudspeaker. Sent only with ``hold=true``."""

    item: str | None
    raw: Raw = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class OutputResumed:
    """The user did not interrupt: continue at the sample at which you paused."""

    item: str | None
    raw: Raw = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Failed:
    """The server refused or failed a request; the call goes on. code: may be empty."""

    message: str
    code: str
    raw: Raw = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Reconnected:
    """The socket was lost, and the call continues over another one.

    resumed: whether the agent remembers the conversation. missed: whether events were lost; if so, drop the
    audio that is queued for the loudspeaker. If the call is resumed and nothing was missed, only the
    microphone's audio has a gap.
    """

    resumed: bool
    missed: bool
    raw: Raw = field(default_factory=dict, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Other:
    """An event of the protocol without a type of its own in this module."""

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
"""Any event of a call."""


def read(raw: Raw) -> CallEvent:
    """Return an event of the protocol as its type. Raises KeyError if a required field is missing."""
    # Servers before the GA version send response.audio.delta and response.text.delta.
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
            return _reply_done(raw)
        case "rejoinder.output_paused":
            return OutputPaused(raw["item_id"], raw)
        case "rejoinder.output_resumed":
            return OutputResumed(raw["item_id"], raw)
        case "error":
            return Failed(raw["error"]["message"], raw["error"].get("code") or "", raw)
    return Other(raw["type"], raw)


def _reply_done(raw: Raw) -> ReplyDone:
    response = raw["response"]
    shown = sum(item["type"] in ("function_call", "mcp_call") for item in response.get("output") or [])
    calls = shown + (response.get("rejoinder") or {}).get("calls", 0)
    return ReplyDone(response["id"], response["status"], calls, raw)


def broken_off(reply: str, message: str) -> CallEvent:
    """Return the ``ReplyDone`` of a reply that the server no longer knows, as a server would send it."""
    cause = {"type": "server_error", "code": "connection_lost", "message": message}
    details = {"type": "failed", "error": cause}
    response = {"id": reply, "object": "realtime.response", "status": "failed", "status_details": details}
    return read({"type": "response.done", "response": response})
