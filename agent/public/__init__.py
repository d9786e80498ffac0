"""Rejoinder: a real-time voice agent pipeline. What stands here is public; everything else may move.

A name is loaded when it is first used, so ``import rejoinder.pipeline`` needs only numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rejoinder.agent.app.agent import Agent as Agent
    from rejoinder.agent.app.call import Call as Call
    from rejoinder.agent.app.tool import ToolError as ToolError
    from rejoinder.agent.app.worker import Worker as Worker
    from rejoinder.agent.client.call import connect as connect
    from rejoinder.agent.server.embedding import mount as mount
    from rejoinder.models.loading import Specs as Specs
    from rejoinder.models.loading import open_models as open_models
    from rejoinder.pipeline import (
        RATE as RATE,
    )
    from rejoinder.pipeline import (
        AudioChunk as AudioChunk,
    )
    from rejoinder.pipeline import (
        CallOver as CallOver,
    )
    from rejoinder.pipeline import (
        EndOfTurn as EndOfTurn,
    )
    from rejoinder.pipeline import (
        Endpointing as Endpointing,
    )
    from rejoinder.pipeline import (
        Engine as Engine,
    )
    from rejoinder.pipeline import (
        Event as Event,
    )
    from rejoinder.pipeline import (
        Llm as Llm,
    )
    from rejoinder.pipeline import (
        Message as Message,
    )
    from rejoinder.pipeline import (
        ModelError as ModelError,
    )
    from rejoinder.pipeline import (
        Models as Models,
    )
    from rejoinder.pipeline import (
        NobodySpoke as NobodySpoke,
    )
    from rejoinder.pipeline import (
        NothingSaid as NothingSaid,
    )
    from rejoinder.pipeline import (
        Options as Options,
    )
    from rejoinder.pipeline import (
        OverlapEnded as OverlapEnded,
    )
    from rejoinder.pipeline import (
        OverlapStarted as OverlapStarted,
    )
    from rejoinder.pipeline import (
        Overloaded as Overloaded,
    )
    from rejoinder.pipeline import (
        PartialTranscript as PartialTranscript,
    )
    from rejoinder.pipeline import (
        PipelineError as PipelineError,
    )
    from rejoinder.pipeline import (
        ProtocolError as ProtocolError,
    )
    from rejoinder.pipeline import (
        ReplyAudio as ReplyAudio,
    )
    from rejoinder.pipeline import (
        ReplyCalled as ReplyCalled,
    )
    from rejoinder.pipeline import (
        ReplyDone as ReplyDone,
    )
    from rejoinder.pipeline import (
        ReplyStarted as ReplyStarted,
    )
    from rejoinder.pipeline import (
        ReplyText as ReplyText,
    )
    from rejoinder.pipeline import (
        Session as Session,
    )
    from rejoinder.pipeline import (
        SpeechStarted as SpeechStarted,
    )
    from rejoinder.pipeline import (
        Stt as Stt,
    )
    from rejoinder.pipeline import (
        SttStream as SttStream,
    )
    from rejoinder.pipeline import (
        ToolCall as ToolCall,
    )
    from rejoinder.pipeline import (
        ToolLlm as ToolLlm,
    )
    from rejoinder.pipeline import (
        Tools as Tools,
    )
    from rejoinder.pipeline import (
        ToolWarmLlm as ToolWarmLlm,
    )
    from rejoinder.pipeline import (
        Trace as Trace,
    )
    from rejoinder.pipeline import (
        Transcript as Transcript,
    )
    from rejoinder.pipeline import (
        Tts as Tts,
    )
    from rejoinder.pipeline import (
        TurnModel as TurnModel,
    )
    from rejoinder.pipeline import (
        TurnTraced as TurnTraced,
    )
    from rejoinder.pipeline import (
        Vad as Vad,
    )
    from rejoinder.pipeline import (
        VadStream as VadStream,
    )
    from rejoinder.pipeline import (
        open_session as open_session,
    )
    from rejoinder.pipeline import (
        to_float as to_float,
    )
    from rejoinder.pipeline import (
        to_pcm as to_pcm,
    )

__all__ = [
    "RATE",
    "Agent",
    "AudioChunk",
    "Call",
    "CallOver",
    "EndOfTurn",
    "Endpointing",
    "Engine",
    "Event",
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
    "PipelineError",
    "ProtocolError",
    "ReplyAudio",
    "ReplyCalled",
    "ReplyDone",
    "ReplyStarted",
    "ReplyText",
    "Session",
    "Specs",
    "SpeechStarted",
    "Stt",
    "SttStream",
    "ToolCall",
    "ToolError",
    "ToolLlm",
    "ToolWarmLlm",
    "Tools",
    "Trace",
    "Transcript",
    "Tts",
    "TurnModel",
    "TurnTraced",
    "Vad",
    "VadStream",
    "Worker",
    "connect",
    "mount",
    "open_models",
    "open_session",
    "to_float",
    "to_pcm",
]

_PIPELINE = "rejoinder.pipeline"
_ELSEWHERE = {
    "Agent": ("rejoinder.agent.app.agent", "server"),
    "Call": ("rejoinder.agent.app.call", "server"),
    "ToolError": ("rejoinder.agent.app.tool", "server"),
    "Worker": ("rejoinder.agent.app.worker", "server"),
    "Specs": ("rejoinder.models.loading", "local"),
    "connect": ("rejoinder.agent.client.call", "client"),
    "mount": ("rejoinder.agent.server.embedding", "server"),
    "open_models": ("rejoinder.models.loading", "local"),
}


def __getattr__(name: str) -> Any:
    """Return a public name. Raises AttributeError for any other, NotInstalled where an extra is missing."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if name not in _ELSEWHERE:
        return getattr(import_module(_PIPELINE), name)
    from rejoinder.models.hints import needing

    module, extra = _ELSEWHERE[name]
    with needing(extra, f"rejoinder.{name}"):
        return getattr(import_module(module), name)


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__
