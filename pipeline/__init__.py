"""The voice agent pipeline for embedding in another program. It depends on numpy only.

Start with ``open_session``: it takes ``Models`` and ``Options`` and returns a ``Session``, which takes the
user's audio and produces events and the agent's audio.
"""

from rejoinder.pipeline.audio.chunk import RATE, AudioChunk, to_float, to_pcm
from rejoinder.pipeline.budget import BudgetLimit, BudgetPlan, Budgets, CallBudget
from rejoinder.pipeline.channel import Channel, Closed
from rejoinder.pipeline.context.summaries import Compress, condensed, summarise, summarise_with
from rejoinder.pipeline.day_tally import DayTally
from rejoinder.pipeline.engines.engine import Engine
from rejoinder.pipeline.engines.load_shedding import LoadLevel, LoadShedder
from rejoinder.pipeline.errors import CallOver, ModelError, Overloaded, PipelineError, ProtocolError
from rejoinder.pipeline.events import (
    BackchannelEnded,
    BudgetReached,
    EagerEndOfTurn,
    EndOfTurn,
    Event,
    NobodySpoke,
    NothingSaid,
    OverlapEnded,
    OverlapStarted,
    PartialTranscript,
    PauseStarted,
    ReplyAudio,
    ReplyCalled,
    ReplyDone,
    ReplyRefused,
    ReplyStarted,
    ReplyText,
    SpeechStarted,
    Transcribed,
    TurnResumed,
    TurnTraced,
)
from rejoinder.pipeline.fitting import check_fits
from rejoinder.pipeline.guarding.guard import Guard, Judge
from rejoinder.pipeline.guarding.rules import Rules
from rejoinder.pipeline.history import History
from rejoinder.pipeline.interfaces import (
    ContextLlm,
    Llm,
    Message,
    MonitoredLlm,
    SharedVadStream,
    Stt,
    SttStream,
    TextLlm,
    TokenLlm,
    ToolCall,
    ToolLlm,
    Tools,
    ToolWarmLlm,
    Transcript,
    Tts,
    TurnModel,
    Usage,
    Vad,
    VadStream,
)
from rejoinder.pipeline.options import Endpointing, Models, Options, ReplyRequest, Speakers
from rejoinder.pipeline.prompt import Entry, Key
from rejoinder.pipeline.replying.speculation import Speculation
from rejoinder.pipeline.session import Session, open_session
from rejoinder.pipeline.trace import Trace
from rejoinder.pipeline.turns.endpointer import Endpointer
from rejoinder.pipeline.turns.floor import Floor
from rejoinder.pipeline.turns.operating_points import POINTS, TurnTaking, turn_taking

__all__ = [
    "POINTS",
    "RATE",
    "AudioChunk",
    "BackchannelEnded",
    "BudgetLimit",
    "BudgetPlan",
    "BudgetReached",
    "Budgets",
    "CallBudget",
    "CallOver",
    "Channel",
    "Closed",
    "Compress",
    "ContextLlm",
    "DayTally",
    "EagerEndOfTurn",
    "EndOfTurn",
    "Endpointer",
    "Endpointing",
    "Engine",
    "Entry",
    "Event",
    "Floor",
    "Guard",
    "History",
    "Judge",
    "Key",
    "Llm",
    "LoadLevel",
    "LoadShedder",
    "Message",
    "ModelError",
    "Models",
    "MonitoredLlm",
    "NobodySpoke",
    "NothingSaid",
    "Options",
    "OverlapEnded",
    "OverlapStarted",
    "Overloaded",
    "PartialTranscript",
    "PauseStarted",
    "PipelineError",
    "ProtocolError",
    "ReplyAudio",
    "ReplyCalled",
    "ReplyDone",
    "ReplyRefused",
    "ReplyRequest",
    "ReplyStarted",
    "ReplyText",
    "Rules",
    "Session",
    "SharedVadStream",
    "Speakers",
    "Speculation",
    "SpeechStarted",
    "Stt",
    "SttStream",
    "TextLlm",
    "TokenLlm",
    "ToolCall",
    "ToolLlm",
    "ToolWarmLlm",
    "Tools",
    "Trace",
    "Transcribed",
    "Transcript",
    "Tts",
    "TurnModel",
    "TurnResumed",
    "TurnTaking",
    "TurnTraced",
    "Usage",
    "Vad",
    "VadStream",
    "check_fits",
    "condensed",
    "open_session",
    "summarise",
    "summarise_with",
    "to_float",
    "to_pcm",
    "turn_taking",
]
