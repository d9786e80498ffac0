"""One call, as an integrator's tools see it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CallInfo:
    """What is known of a call before it is answered.

    id: the call's identifier, also in the log. wire: the protocol, such as "realtime", "pcm" or "Twilio".
    caller: the caller's number, "" if unknown.
    """

    id: str = ""
    wire: str = ""
    caller: str = ""


class Call:
    """One call. A tool with a parameter of this type gets the call that it runs in.

    info: what was known when the call began.
    """

    def __init__(self, info: CallInfo) -> None:
        self.info = info
