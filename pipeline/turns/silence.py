"""When nobody says anything: the agent asks whether somebody is there, and calls that last too long end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum, auto

from rejoinder.pipeline.errors import CallOver
from rejoinder.pipeline.options import Options

LOOK_SECONDS = 0.1
"""How often it is looked who speaks."""
GRACE_SECONDS = 10.0
"""So long whoever speaks at the end of a call may go on: nobody is cut off in mid-word."""


class Due(Enum):
    """What the time has come for."""

    PROMPT = auto()
    END = auto()


class Silence:
    """What follows from how long nobody has spoken, and how long the call lasts. Times are in seconds.

    prompts: how often the agent has asked since the user spoke.
    """

    def __init__(self) -> None:
        self.prompts = 0
        self._began: float | None = None
        self._since: float | None = None

    def look(self, now: float, quiet: bool, options: Options) -> Due | None:
        """Say what is due now; ``quiet`` is whether nobody has the floor. The first look begins the call."""
        self._began = now if self._began is None else self._began
        self._since = (now if self._since is None else self._since) if quiet else None
        over = now - self._began - options.max_call_s
        if options.max_call_s and over >= (0.0 if quiet else GRACE_SECONDS):
            return Due.END
        asks = options.idle_s and options.create_response and self.prompts < options.idle_prompts
        if asks and self._since is not None and now - self._since >= options.idle_s:
            self.prompts += 1
            self._since = None
            return Due.PROMPT
        return None

    def user_spoke(self) -> None:
        """Note that the user is there."""
        self.prompts = 0


async def watch(
    silence: Silence,
    options: Callable[[], Options],
    is_quiet: Callable[[], bool],
    prompt: Callable[[float], None],
    configured: asyncio.Event,
) -> None:
    """Let the agent ask where nobody speaks, until the call has lasted too long. Raises CallOver."""
    loop = asyncio.get_running_loop()
    while True:
        wanted = options()
        if not (wanted.idle_s or wanted.max_call_s):
            silence.look(loop.time(), False, wanted)  # the call begins, and no silence is counted
            configured.clear()
            await configured.wait()
            continue
        match silence.look(loop.time(), is_quiet(), wanted):
            case Due.PROMPT:
                prompt(wanted.idle_s)
            case Due.END:
                raise CallOver(f"the call has lasted as long as it may: {wanted.max_call_s:g} s")
        await asyncio.sleep(LOOK_SECONDS)
