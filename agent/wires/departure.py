"""The end of a call that the server ends: the agent says goodbye, and the call is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from rejoinder.agent.wires.failures import SHUTTING_DOWN, Departed
from rejoinder.pipeline import PipelineError, ReplyRequest, Session

LAST_WORDS_SECONDS = 10.0
"""Longest time for the last words, in seconds. After that the call ends, even if the caller speaks."""
PLAYOUT_CHECK_SECONDS = 0.05
"""Interval between two checks whether the caller has heard the last words, in seconds."""
CLIENT_BUFFER_SECONDS = 0.3
"""Audio that a client may still have to play when all of it should have been heard, in seconds."""


class Departure:
    """Ends one call, once ``begin`` is called.

    speaks: whether the caller hears a goodbye when the server ends; False where the conversation goes on at
    another one.
    """

    def __init__(self) -> None:
        self.speaks = True
        self._words = ""
        self._error: PipelineError = Departed(SHUTTING_DOWN)
        self._begun = asyncio.Event()

    @property
    def begun(self) -> bool:
        """Whether the call is about to end."""
        return self._begun.is_set()

    def begin(self, words: str, error: PipelineError | None = None) -> None:
        """End the call; nothing follows if it is about to end already.

        words: said to the caller before, "" for none. error: that ends it, None for ``Departed``.
        """
        if self.begun:
            return
        self._words = words.strip() if self.speaks or error else ""
        self._error = error or self._error
        self._begun.set()

    async def run(self, session: Session, playing: Callable[[], bool]) -> None:
        """Wait until the call has to end, say the last words, and raise the error. Cancelling ends the wait.

        The last words replace a reply of the agent, and wait for the end of the user's turn. playing: whether
        the client has not played all audio yet, as far as it reports that.
        """
        await self._begun.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                if self._words:
                    orderly = isinstance(self._error, Departed)
                    if not orderly:  # there may be no end of the user's turn
                        session.clear_audio()
                        session.configure(replace(session.options, create_response=False))
                    session.respond(ReplyRequest(words=self._words, interruptible=orderly))
                    while not session.at_rest or playing():  # noqa: ASYNC110 - play-out has no event
                        await asyncio.sleep(PLAYOUT_CHECK_SECONDS)
                    await asyncio.sleep(CLIENT_BUFFER_SECONDS)
        raise self._error
