"""Rejoinder: a real-time voice agent pipeline. What stands here is public; everything else may move.

What needs more than numpy is loaded when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from rejoinder.pipeline import (
    RATE,
    AudioChunk,
    BackchannelEnded,
    BudgetLimit,
    BudgetPlan,
    BudgetReached,
    Budgets,
    CallOver,
    Compress,
    ContextLlm,
    DayTally,
    EndOfTurn,
    Endpointing,
    Engine,
    Event,
    Guard,
    Llm,
    Message,
    ModelError,
    Models,
    NobodySpoke,
    NothingSaid,
    Options,
    OverlapEnded,
    OverlapStarted,
    Overloaded,
    PartialTranscript,
    PipelineError,
    ProtocolError,
    ReplyAudio,
    ReplyCalled,
    ReplyDone,
    ReplyRefused,
    ReplyStarted,
    ReplyText,
    Rules,
    Session,
    SpeechStarted,
    Stt,
    SttStream,
    ToolCall,
    ToolLlm,
    Tools,
    ToolWarmLlm,
    Trace,
    Transcript,
    Tts,
    TurnModel,
    TurnTraced,
    Vad,
    VadStream,
    condensed,
    open_session,
    summarise,
    summarise_with,
    to_float,
    to_pcm,
    turn_taking,
)

if TYPE_CHECKING:
    from rejoinder.agent.app.agent import Agent
    from rejoinder.agent.app.call import Call
    from rejoinder.agent.app.guarding.turn_words import TurnWords
    from rejoinder.agent.app.tool import ToolError
    from rejoinder.agent.app.worker import Worker
    from rejoinder.agent.client.call import connect
    from rejoinder.agent.server.embedding import mount
    from rejoinder.models.guard.guardrails import guardrails
    from rejoinder.models.loading import Specs, open_models

__all__ = [
    "RATE",
    "Agent",
    "AudioChunk",
    "BackchannelEnded",
    "BudgetLimit",
    "BudgetPlan",
    "BudgetReached",
    "Budgets",
    "Call",
    "CallOver",
    "Compress",
    "ContextLlm",
    "DayTally",
    "EndOfTurn",
    "Endpointing",
    "Engine",
    "Event",
    "Guard",
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
    "ReplyRefused",
    "ReplyStarted",
    "ReplyText",
    "Rules",
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
    "TurnWords",
    "Vad",
    "VadStream",
    "Worker",
    "condensed",
    "connect",
    "guardrails",
    "mount",
    "open_models",
    "open_session",
    "summarise",
    "summarise_with",
    "to_float",
    "to_pcm",
    "turn_taking",
]

_LAZY = {
    "Agent": ("rejoinder.agent.app.agent", "server"),
    "Call": ("rejoinder.agent.app.call", "server"),
    "ToolError": ("rejoinder.agent.app.tool", "server"),
    "TurnWords": ("rejoinder.agent.app.guarding.turn_words", "server"),
    "Worker": ("rejoinder.agent.app.worker", "server"),
    "Specs": ("rejoinder.models.loading", "local"),
    "connect": ("rejoinder.agent.client.call", "client"),
    "guardrails": ("rejoinder.models.guard.guardrails", "models"),
    "mount": ("rejoinder.agent.server.embedding", "server"),
    "open_models": ("rejoinder.models.loading", "local"),
}
"""The module and the extra of each name that needs more than numpy."""


def __getattr__(name: str) -> Any:
    """Return a name of ``_LAZY``. Raises AttributeError for any other, NotInstalled without the extra."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from rejoinder.models.hints import needing

    module, extra = _LAZY[name]
    with needing(extra, f"rejoinder.{name}"):
        return getattr(import_module(module), name)


def __dir__() -> list[str]:
    """Return the public names."""
    return __all__
