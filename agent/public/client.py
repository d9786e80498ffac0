"""The Python client, and this machine's microphone and speaker: ``from rejoinder.client import connect``.

The devices need sounddevice and PortAudio, from the extra ``mic``; they are loaded when a device is chosen.
"""

from rejoinder.models.hints import needing

with needing("client", "rejoinder.client"):
    from rejoinder.agent.client.audio import CLIENT_RATE
    from rejoinder.agent.client.call import Call, connect
    from rejoinder.agent.client.devices import (
        Device,
        NoDevice,
        at_rate,
        choose_device,
        list_devices,
        microphone,
        speaker,
    )
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
    from rejoinder.agent.client.handover import Handover
    from rejoinder.agent.client.loudspeaker import Loudspeaker
    from rejoinder.agent.client.playback import Playback
    from rejoinder.agent.client.socket import CallLost

__all__ = [
    "CLIENT_RATE",
    "AgentAudio",
    "AgentDelta",
    "AgentSaid",
    "Call",
    "CallEvent",
    "CallLost",
    "Device",
    "Failed",
    "Handover",
    "Loudspeaker",
    "NoDevice",
    "Other",
    "OutputPaused",
    "OutputResumed",
    "Playback",
    "Reconnected",
    "ReplyDone",
    "ReplyStarted",
    "SpeechStarted",
    "SpeechStopped",
    "ToolCalled",
    "UserDelta",
    "UserSaid",
    "at_rate",
    "choose_device",
    "connect",
    "list_devices",
    "microphone",
    "speaker",
]
