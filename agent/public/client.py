"""The Python client: ``from rejoinder.client import connect``."""

from rejoinder.models.hints import needing

with needing("client", "rejoinder.client"):
    from rejoinder.agent.client.client import RATE, Call, CallLost, connect
    from rejoinder.agent.client.events import (
        AgentAudio,
        AgentDelta,
        AgentSaid,
        CallEvent,
        Failed,
        Other,
        OutputPaused,
        OutputResumed,
        Reconnected,
        ReplyDone,
        ReplyStarted,
        SpeechStarted,
        SpeechStopped,
        ToolCalled,
        UserDelta,
        UserSaid,
    )

__all__ = [
    "RATE",
    "AgentAudio",
    "AgentDelta",
    "AgentSaid",
    "Call",
    "CallEvent",
    "CallLost",
    "Failed",
    "Other",
    "OutputPaused",
    "OutputResumed",
    "Reconnected",
    "ReplyDone",
    "ReplyStarted",
    "SpeechStarted",
    "SpeechStopped",
    "ToolCalled",
    "UserDelta",
    "UserSaid",
    "connect",
]
