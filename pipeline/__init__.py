"""The pipeline that integrators embed: nouns, decisions, stages and lifetimes. Needs only numpy."""

from rejoinder.pipeline.audio import RATE, AudioChunk, to_float, to_pcm
from rejoinder.pipeline.channel import Channel, Closed
from rejoinder.pipeline.endpointer import Endpointer, Floor
from rejoinder.pipeline.engine import Engine
from rejoinder.pipeline.errors import CallOver, ModelError, Overloaded, PipelineError, ProtocolError
from rejoinder.pipeline.events import (
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
    ReplyDone,
    ReplyStarted,
    ReplyText,
    SpeechStarted,
    Transcribed,
    TurnResumed,
    TurnTraced,
)
from rejoinder.pipeline.history import History
from rejoinder.pipeline.interfaces import (
    Llm,
    Message,
    Stt,
    SttStream,
    Transcript,
    Tts,
    TurnModel,
    Vad,
    VadStream,
)
from rejoinder.pipeline.options import Endpointing, Models, Options
from rejoinder.pipeline.session import Session, open_session
from rejoinder.pipeline.speculation import Speculation
from rejoinder.pipeline.trace import Trace

__all__ = [
    "RATE",
    "AudioChunk",
    "CallOver",
    "Channel",
    "Closed",
    "EagerEndOfTurn",
    "EndOfTurn",
    "Endpointer",
    "Endpointing",
    "Engine",
    "Event",
    "Floor",
    "History",
    "Llm",
    "Message",
    "ModelError",
    "Models",
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
    "ReplyDone",
    "ReplyStarted",
    "ReplyText",
    "Session",
    "Speculation",
    "SpeechStarted",
    "Stt",
    "SttStream",
    "Trace",
    "Transcribed",
    "Transcript",
    "Tts",
    "TurnModel",
    "TurnResumed",
    "TurnTraced",
    "Vad",
    "VadStream",
    "open_session",
    "to_float",
    "to_pcm",
]
