"""Rejoinder: a real-time voice agent pipeline. The names in this module are public; other modules may move.

A name is loaded when it is first used, so ``import rejoinder.pipeline`` needs only numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rejoinder.agent.app.agent import Agent
    from rejoinder.agent.app.answering.phrases import AnsweredBy
    from rejoinder.agent.app.answering.who_answered import CallAnswer
    from rejoinder.agent.app.call import Call, CallInfo, RefusedCall
    from rejoinder.agent.app.guarding.turn_words import TurnWords
    from rejoinder.agent.app.mcp.server import McpServer, ToolRules
    from rejoinder.agent.app.memory.memory import Memory
    from rejoinder.agent.app.memory.sqlite import SqliteMemory
    from rejoinder.agent.app.tool import ToolError, Untold
    from rejoinder.agent.client.call import connect
    from rejoinder.agent.server.embedding import serve
    from rejoinder.models.guard.guardrails import guardrails
    from rejoinder.models.loading import Specs, open_models
    from rejoinder.pipeline import (
        RATE,
        AudioChunk,
        BackchannelEnded,
        CallOver,
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
        Session,
        SpeechStarted,
        Stt,
        SttStream,
        ToolCall,
        ToolLlm,
        Tools,
        Trace,
        Transcript,
        Tts,
        TurnModel,
        TurnTraced,
        Vad,
        VadStream,
        open_session,
        to_float,
        to_pcm,
        turn_taking,
    )

__all__ = [
    "RATE",
    "Agent",
    "AnsweredBy",
    "AudioChunk",
    "BackchannelEnded",
    "Call",
    "CallAnswer",
    "CallInfo",
    "CallOver",
    "EndOfTurn",
    "Endpointing",
    "Engine",
    "Event",
    "Guard",
    "Llm",
    "McpServer",
    "Memory",
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
    "RefusedCall",
    "ReplyAudio",
    "ReplyCalled",
    "ReplyDone",
    "ReplyRefused",
    "ReplyStarted",
    "ReplyText",
    "Session",
    "Specs",
    "SpeechStarted",
    "SqliteMemory",
    "Stt",
    "SttStream",
    "ToolCall",
    "ToolError",
    "ToolLlm",
    "ToolRules",
    "Tools",
    "Trace",
    "Transcript",
    "Tts",
    "TurnModel",
    "TurnTraced",
    "TurnWords",
    "Untold",
    "Vad",
    "VadStream",
    "connect",
    "guardrails",
    "open_models",
    "open_session",
    "serve",
    "to_float",
    "to_pcm",
    "turn_taking",
]

_PIPELINE = "rejoinder.pipeline"
_ELSEWHERE = {
    "Agent": ("rejoinder.agent.app.agent", "server"),
    "AnsweredBy": ("rejoinder.agent.app.answering.phrases", "server"),
    "Call": ("rejoinder.agent.app.call", "server"),
    "CallAnswer": ("rejoinder.agent.app.answering.who_answered", "server"),
    "CallInfo": ("rejoinder.agent.app.call", "server"),
    "RefusedCall": ("rejoinder.agent.app.call", "server"),
    "McpServer": ("rejoinder.agent.app.mcp.server", "mcp"),
    "Specs": ("rejoinder.models.loading", "local"),
    "Memory": ("rejoinder.agent.app.memory.memory", "server"),
    "SqliteMemory": ("rejoinder.agent.app.memory.sqlite", "server"),
    "ToolError": ("rejoinder.agent.app.tool", "server"),
    "ToolRules": ("rejoinder.agent.app.mcp.server", "mcp"),
    "TurnWords": ("rejoinder.agent.app.guarding.turn_words", "server"),
    "Untold": ("rejoinder.agent.app.tool", "server"),
    "connect": ("rejoinder.agent.client.call", "client"),
    "guardrails": ("rejoinder.models.guard.guardrails", "models"),
    "serve": ("rejoinder.agent.server.embedding", "server"),
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
