"""The recorder of a call on a server without recordings."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from rejoinder.agent.recording.changes import RecordingChange
from rejoinder.pipeline import Event, Options, Session

NO_RECORDINGS = "this server records no calls: its setting recordings names no folder"
"""Why there is no recording on a server without recordings."""


class NoRecorder:
    """Records nothing, and says so."""

    def __init__(self) -> None:
        self._asked = asyncio.Event()

    def deferring(self, options: Options) -> Options:
        """Return the options."""
        return options

    def ask(self, begin: bool, announce: bool = True) -> None:
        """Let the client know that there are no recordings."""
        self._asked.set()

    async def record(self, announce: bool = True) -> str:
        """Return why there is no recording. It never waits, so there is nothing to cancel."""
        return NO_RECORDINGS

    def stop(self) -> None:
        """Do nothing."""

    def hear(self, pcm: bytes) -> None:
        """Do nothing."""

    def take(self, happened: Event) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""

    async def run(self, session: Session, tell: Callable[[RecordingChange], Awaitable[None]]) -> None:
        """Tell who asks that there are no recordings, until cancelled. Raises what ``tell`` raises."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            await tell(RecordingChange("", False, NO_RECORDINGS))
