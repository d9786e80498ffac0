"""What happens in a conversation, as small frozen values.

The ``Endpointer`` produces the first group from audio and transcripts; a ``Session`` hands both groups to
whoever embeds it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rejoinder.pipeline.audio.chunk import AudioChunk
from rejoinder.pipeline.interfaces import ToolCall, Usage
from rejoinder.pipeline.trace import Trace


@dataclass(frozen=True, slots=True)
class SpeechStarted:
    """Somebody began to speak at sample ``at``."""

    at: int


@dataclass(frozen=True, slots=True)
class PauseStarted:
    """The speaker fell silent; ``at`` is the end of the last voiced sample."""

    at: int


@dataclass(frozen=True, slots=True)
class Transcribed:
    """The words of the turn up to the pause are known, and whether it is over is not."""

    text: str


@dataclass(frozen=True, slots=True)
class EagerEndOfTurn:
    """The turn may soon be over with these words: worth starting an answer, not worth being heard."""

    text: str


@dataclass(frozen=True, slots=True)
class TurnResumed:
    """The speaker went on after a pause: an eager answer is void."""


@dataclass(frozen=True, slots=True)
class EndOfTurn:
    """The turn is over: ``text`` is what was said, ``at`` the end of its last voiced sample."""

    text: str
    at: int


@dataclass(frozen=True, slots=True)
class NothingSaid:
    """What sounded like speech until sample ``at`` held no words."""

    at: int


@dataclass(frozen=True, slots=True)
class OverlapStarted:
    """Somebody may be speaking, from sample ``at`` on, while the agent does; the reply pauses.

    OverlapEnded follows where it was nothing, SpeechStarted where it is an interruption.
    """

    at: int


@dataclass(frozen=True, slots=True)
class OverlapEnded:
    """It was no interruption but a noise, or the ``text`` of a backchannel: the reply goes on."""

    text: str


@dataclass(frozen=True, slots=True)
class NobodySpoke:
    """Nobody has spoken between two samples, and the agent is about to ask whether somebody is there."""

    since: int
    at: int


@dataclass(frozen=True, slots=True)
class PartialTranscript:
    """The words so far; ``agreed`` is their beginning that two hypotheses agreed on and only ever grows."""

    text: str
    agreed: str


@dataclass(frozen=True, slots=True)
class ReplyStarted:
    """A committed reply begins.

    tag: of what was asked for, 0 where nobody did. speaks: False for one that is written only.
    """

    turn: int
    tag: int = 0
    speaks: bool = True


@dataclass(frozen=True, slots=True)
class ReplyText:
    """The text of the clause whose audio follows; a piece of the text where no audio does."""

    turn: int
    text: str


@dataclass(frozen=True, slots=True)
class ReplyAudio:
    """Audio to play now; ``chunk.start`` counts from the reply's first sample."""

    turn: int
    chunk: AudioChunk


@dataclass(frozen=True, slots=True)
class ReplyCalled:
    """A reply whose words are over calls a tool: run it, and add what it returns to the history."""

    turn: int
    call: ToolCall


@dataclass(frozen=True, slots=True)
class ReplyDone:
    """Nothing more comes from this reply.

    status: "completed" when all of it was sent, "incomplete" when that ended where it might have no more
        tokens or seconds, "cancelled" when it was cut short, "failed" when ``error`` says why.
    heard: the text that had been played when the reply was cancelled; otherwise all that was sent.
    usage: what it has cost, None where the language model does not count.
    code: a word for the error, "" where it is a model's.
    cause: the error itself, whose words are not for callers; None where there is none.
    """

    turn: int
    status: str
    heard: str
    error: str = ""
    usage: Usage | None = None
    code: str = ""
    cause: BaseException | None = field(default=None, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class TurnTraced:
    """The first audio of a turn left: here is where its time went."""

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
)
Event = (
    FloorEvent
    | NobodySpoke
    | PartialTranscript
    | ReplyStarted
    | ReplyText
    | ReplyAudio
    | ReplyCalled
    | ReplyDone
    | TurnTraced
)
