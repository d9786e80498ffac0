"""Carries out the actions of one call: each waits until the caller has heard what was said before it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from rejoinder.agent.app.control import CallControl
from rejoinder.agent.app.recordings import load_recording
from rejoinder.agent.app.tones import TONE_KEYS, tones
from rejoinder.agent.app.tool import ToolError
from rejoinder.agent.recording.recorder import NO_RECORDINGS, AudioRecorder
from rejoinder.pipeline import ReplyRequest, Session

log = logging.getLogger(__name__)

HEARD_CHECK_S = 0.05
"""Interval between two checks whether the caller has heard the last words, in seconds."""
LAST_WORDS_S = 5.0
"""Longest wait for a line to report that it has played the last words, in seconds: reports can be lost."""
MOST_DIGITS = 64
"""Most digits that are sent at once."""


class CallActions:
    """The actions of one call. changed: called when ``leaving`` or the end of a hold may matter to a waiter.

    idle: takes the loop time; returns whether the session only waits for the tool that acts.
    leaving: why the agent ends the call, "" until then. left: whether the caller is with someone else by now,
    so that nothing is to be heard out or hung up. held: whether the caller is on hold. recorder: of the call,
    None for none.
    """

    def __init__(
        self,
        session: Session,
        control: CallControl,
        changed: Callable[[], None],
        idle: Callable[[float], bool] = lambda now: False,
    ) -> None:
        self.leaving = ""
        self.left = False
        self.held = False
        self.recorder: AudioRecorder | None = None
        self._session = session
        self._control = control
        self._changed = changed
        self._idle = idle
        self._waiting = 0
        self._unheard_since: float | None = None
        self._loop = asyncio.get_running_loop()

    def hang_up(self, reason: str) -> None:
        """End the call once the caller has heard the last words. reason: for the log and the client.

        A synchronous tool may call it from its thread.
        """
        self.leaving = reason
        self._loop.call_soon_threadsafe(self._changed)

    @property
    def quiet(self) -> bool:
        """Whether the agent says nothing of its own accord: on hold, on leaving, and before it acts."""
        return self.held or bool(self.leaving) or self._waiting > 0

    def heard(self, now: float) -> bool:
        """Return whether the caller has heard all that was said, and says nothing. now: loop time."""
        if not (self._session.at_rest or self._idle(now)):
            self._unheard_since = None
            return False
        if not self._control.playing:
            return True
        since = self._unheard_since = now if self._unheard_since is None else self._unheard_since
        return now - since >= LAST_WORDS_S

    async def end(self) -> None:
        """Hang up at the carrier. A carrier that fails is logged: the connection ends anyway.

        Cancelling may leave the caller's line open.
        """
        try:
            await self._control.hang_up()
        except ToolError as error:
            log.warning("the carrier did not hang up: %s", error)

    async def transfer(self, to: str, briefing: str) -> None:
        """Connect the caller with ``to``, and leave the call. Raises ToolError; the call goes on then.

        Cancelling before the last word is heard transfers nothing.
        """
        await self._heard()
        await self._control.transfer(to, briefing)
        self.leaving, self.left = f"transferred to {to}", True
        self._changed()

    async def send_digits(self, digits: str) -> None:
        """Press keys, after the last word. Raises ToolError. Cancelling before that presses none."""
        if not digits or len(digits) > MOST_DIGITS or set(digits) - set(TONE_KEYS):
            raise ToolError(f"Digits are up to {MOST_DIGITS} characters of {TONE_KEYS}, not {digits[:80]!r}.")
        await self._heard()
        if self._control.tones:
            self._session.respond(ReplyRequest(words=f"(pressed {digits})", audio=tones(digits)))
        else:
            await self._control.send_digits(digits)

    async def hold(self) -> None:
        """Put the caller on hold, after the last word: neither side hears the other. Raises ToolError.

        Cancelling leaves the call as it is.
        """
        await self._heard()
        if self.held:
            return
        self.held = True
        self._session.hold(self._loop.time())
        try:
            await self._control.hold()
        except BaseException:
            self._release()
            raise

    async def resume(self) -> None:
        """Take the caller off hold. Raises ToolError where the carrier's music does not stop.

        Cancelling takes the caller off hold all the same.
        """
        if not self.held:
            return
        try:
            await self._control.resume()
        finally:
            self._release()

    def _release(self) -> None:
        self.held = False
        self._session.release()
        self._changed()

    async def record(self, announce: bool) -> None:
        """Begin a recording. Raises ToolError where there is none. Cancelling stops the wait for it."""
        if self.recorder is None:
            raise ToolError(NO_RECORDINGS)
        if not await self.recorder.record(announce):
            raise ToolError("The call is not recorded: the announcement was not heard, or the disk failed.")

    def stop_recording(self) -> None:
        """End the recording, if one runs. A synchronous tool may call it from its thread."""
        if self.recorder:
            self._loop.call_soon_threadsafe(self.recorder.stop)

    async def play(self, file: Path, words: str) -> None:
        """Play an audio file in place of a reply. words: what is said in it. Raises ToolError.

        Cancelling while the file is read plays nothing.
        """
        audio = await asyncio.to_thread(load_recording, file)
        self._session.respond(ReplyRequest(words=words or f"(plays {file.stem})", audio=audio))

    async def _heard(self) -> None:
        self._waiting += 1
        try:
            while not self.heard(self._loop.time()):  # noqa: ASYNC110 - play-out has no event
                await asyncio.sleep(HEARD_CHECK_S)
        finally:
            self._waiting -= 1
