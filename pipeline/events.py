"""The events of a conversation, as small frozen values.

The ``Endpointer`` produces the events in ``FloorEvent`` from audio and transcripts. A ``Session`` sends all
events in ``Event`` to the program that embeds it. Samples are at 16 kHz, counted from the session's start.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rejoinder.pipeline.audio.chunk import AudioChunk
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.interfaces import ToolCall, Usage
from rejoinder.pipeline.trace import Trace


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """The user began to speak at sample ``at``. interrupts: whether that stops the agent."""

    at: int
    interrupts: bool = True


@dataclass(frozen=True, slots=True)
class PauseStarted:
    """The user fell silent; ``at`` is the end of the last voiced sample."""

    at: int


@dataclass(frozen=True, slots=True)
class Transcribed:
    """The words of the turn up to the pause are final; the turn may go on."""

    text: str


@dataclass(frozen=True, slots=True)
class EagerEndOfTurn:
    """The turn is probably over, with these words: a reply may start, but is not played yet."""

    text: str


@dataclass(frozen=True, slots=True)
class TurnResumed:
    """The turn goes on after a pause: the reply started at EagerEndOfTurn is dropped."""


@dataclass(frozen=True, slots=True)
class EndOfTurn:
    """The turn is over: ``text`` holds its words, and ``at`` is the end of its last voiced sample."""

    text: str
    at: int


@dataclass(frozen=True, slots=True)
class NothingSaid:
    """The sound that ended at sample ``at`` contained no words.

    error: why its words are not known, if the speech recogniser failed.
    """

    at: int
    error: ModelError | None = None


@dataclass(frozen=True, slots=True)
class OverlapStarted:
    """A sound began at sample ``at`` while the agent speaks; the reply pauses.

    SpeechStarted follows if it is an interruption, OverlapEnded if it is not. The same sound may begin again
    after an OverlapEnded, once it has other words.
    """

    at: int


@dataclass(frozen=True, slots=True)
class OverlapEnded:
    """The sound is no interruption so far, and the reply goes on, maybe before the sound is over.

    If the sound goes on, BackchannelEnded follows at its end; or OverlapStarted or SpeechStarted, with the
    same sample, if it becomes an interruption.
    text: the words of a backchannel such as "mm-hm", "" for a noise. is_over: whether the sound is over.
    """

    text: str
    is_over: bool = True


@dataclass(frozen=True, slots=True)
class BackchannelEnded:
    """The sound under which the reply went on is over, and was no interruption.

    text: the words of a backchannel, "" for a noise.
    """

    text: str


@dataclass(frozen=True, slots=True)
class NobodySpoke:
    """Both sides were silent from sample ``since`` to sample ``at``; the agent now prompts the user."""

    since: int
    at: int


@dataclass(frozen=True, slots=True)
class PartialTranscript:
    """The words of the turn so far.

    agreed: the first words, which two successive hypotheses share. Within a turn it only grows.
    """

    text: str
    agreed: str


@dataclass(frozen=True, slots=True)
class ReplyStarted:
    """A committed reply begins.

    turn: number of the reply. tag: that of its ``ReplyRequest``, 0 without one.
    speaks: False for a reply in text only. out_of_band: whether it is no part of the conversation.
    """

    turn: int
    tag: int = 0
    speaks: bool = True
    out_of_band: bool = False


@dataclass(frozen=True, slots=True)
class ReplyText:
    """The text of the clause whose audio follows, or the next piece of a reply in text only."""

    turn: int
    text: str


@dataclass(frozen=True, slots=True)
class ReplyAudio:
    """Audio to play now; ``chunk.start`` counts from the reply's first sample."""

    turn: int
    chunk: AudioChunk


@dataclass(frozen=True, slots=True)
class BudgetReached:
    """A budget is nearly used up, or spent; then the call ends at the next silence.

    scope: call, key, address or day. share: of the budget, that is used. over: whether it is spent.
    """

    scope: str
    share: float
    over: bool


@dataclass(frozen=True, slots=True)
class ReplyRefused:
    """A guard has refused a clause of a reply: a sentence replaces it, and the reply ends with that.

    It may come before the audio of the clauses in front of it. reason: the rule, or what the judge said.
    """

    turn: int
    reason: str


@dataclass(frozen=True, slots=True)
class ReplyCalled:
    """A reply has finished its words and calls a tool: run it, and insert its result into the history."""

    turn: int
    call: ToolCall


@dataclass(frozen=True, slots=True)
class ReplyDone:
    """A reply has ended: no more events of it follow.

    status: "completed" if all of it was sent, "incomplete" if it reached its limit of tokens or seconds or a
        guard refused a clause, "cancelled" if it was stopped, "failed" if a model failed.
    heard: the text played before the reply was cancelled; otherwise all text sent.
    error: the message of the failure, "" without one.
    usage: tokens used, None if the language model does not count tokens.
    code: error code of a ProtocolError, "" otherwise.
    cause: the exception of a failed reply, for operators; do not show its text to callers.
    played: seconds of its audio that were played.
    refused: why a guard refused a clause of it, "" if none did.
    trace: the times and counts of the reply, None where nothing ran.
    """

    turn: int
    status: str
    heard: str
    error: str = ""
    usage: Usage | None = None
    code: str = ""
    cause: BaseException | None = field(default=None, repr=False, compare=False)
    played: float = field(default=0.0, compare=False)
    refused: str = ""
    trace: Trace | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class TurnTraced:
    """The first audio of a reply was sent: ``trace`` says where the latency comes from."""

    trace: Trace


FloorEvent = (
    SpeechStarted
    | PauseStarted
    | Transcribed
    | EagerEndOfTurn
    | TurnResumed
    | EndOfTurn
    | NothingSaid
    | OverlapStarted
    | OverlapEnded
    | BackchannelEnded
)
Event = (
    FloorEvent
    | NobodySpoke
    | PartialTranscript
    | ReplyStarted
    | ReplyText
    | ReplyAudio
    | BudgetReached
    | ReplyRefused
    | ReplyCalled
    | ReplyDone
    | TurnTraced
)
