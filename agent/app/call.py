"""One call, as an integrator's tools see it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

Say = Callable[[str], Awaitable[None]]
"""Says words to the caller; see ``Call.say``."""


async def _say_nothing(words: str) -> None:
    """Say nothing: there is no caller yet, or no longer."""



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
        self._say: Say = _say_nothing

    async def say(self, words: str) -> None:
        """Say these words exactly, such as "Holding a seat." in a slow tool.

        It returns when the floor is free and the agent begins to speak, so the tool goes on meanwhile. After
        the call it does nothing. Cancelling before it returns says nothing. Raises TypeError for other than
        text.
        """
        if not isinstance(words, str):
            raise TypeError(f"call.say needs text, and this is of type {type(words).__name__}")
        if words.strip():
            await self._say(words)

    def connect(self, say: Say | None) -> None:
        """Let ``say`` reach the caller; None once the call is over."""
        self._say = say or _say_nothing
