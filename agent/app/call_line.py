"""What a ``Call`` does to its session: it says words and hangs up, each when neither side speaks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from rejoinder.agent.app.runs import ToolRuns
from rejoinder.agent.app.tool import ToolError
from rejoinder.pipeline import Message, ReplyRequest, Session

SAID = -1
"""The tag of replies that speak given words. Clients' tags are positive."""
HEARD_CHECK_S = 0.05
"""Interval between two checks whether the caller has heard the last words, in seconds."""
LAST_WORDS_S = 5.0
"""Longest wait for a client to report that it has played the last words, in seconds: reports can be lost."""


class RecordingControl(Protocol):
    """What begins and ends recordings of the call."""

    async def record(self, announce: bool = True) -> str:
        """Begin a recording, and wait; return "" once it runs, or why there is none.

        announce: speak the announcement first, if there is one. Cancelling stops the wait.
        """

    def stop(self) -> None:
        """End the recording, if one runs."""


class CallLine:
    """The ``Line`` of one connected call.

    runs: the tools of the call. playing: whether the client has not played all audio yet, as far as it
    reports that. changed: called when ``ending`` is set. configure: applies the call's options to the
    session. recorder: of the call.

    ending: why the call ends now, "" until then. over: whether it has ended.
    """

    def __init__(
        self,
        session: Session,
        runs: ToolRuns,
        playing: Callable[[], bool],
        changed: Callable[[], None],
        configure: Callable[[], None],
        recorder: RecordingControl,
    ) -> None:
        self.ending = ""
        self.over = False
        self._session = session
        self._runs = runs
        self._playing = playing
        self._changed = changed
        self._configure = configure
        self._recorder = recorder
        self._happened = asyncio.Event()

    async def say(self, words: str) -> None:
        """Wait until the floor is free, and begin to say words. Cancelling before that says nothing."""
        while not self.over:
            if self._session.floor_is_free:
                self._runs.saying()
                self._session.respond(ReplyRequest(words=words, tag=SAID))
                return
            await self._happened.wait()

    async def hang_up(self, say: str, reason: str) -> None:
        """End the call once the caller has heard all words, and ``say``. Cancelling keeps the call."""
        self._runs.leaving(True)
        try:
            if say.strip():
                await self.say(say)
            waited = 0.0
            while not self.over and waited < LAST_WORDS_S:
                if self._session.at_rest and not self._playing():
                    break
                waited = waited + HEARD_CHECK_S if self._session.at_rest else 0.0
                await asyncio.sleep(HEARD_CHECK_S)
        except BaseException:
            self._runs.leaving(False)
            raise
        self.ending = reason
        self._changed()

    async def record(self, announce: bool) -> None:
        """Record the call. Raises ToolError where it is not recorded. Cancelling stops the wait for it."""
        if reason := await self._recorder.record(announce):
            raise ToolError(f"The call is not recorded: {reason}.")

    def stop_recording(self) -> None:
        """End the recording, if one runs."""
        self._recorder.stop()

    def transcript(self) -> Sequence[Message]:
        """Return the conversation as both sides heard it, in OpenAI's chat format."""
        return self._session.history.transcript()

    def configured(self) -> None:
        """Apply the call's options and tools from the next reply on."""
        if not self.over:
            self._configure()

    def wake(self) -> None:
        """Look again whether the floor is free."""
        self._happened.set()  # those that wait now go on
        self._happened.clear()
