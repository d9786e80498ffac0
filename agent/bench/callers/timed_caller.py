"""What every caller of a bench has: a microphone, a player, and a clock that begins with the call."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from rejoinder.agent.bench.callers.room import Room
from rejoinder.agent.client.audio import CLIENT_RATE
from rejoinder.agent.simulate.player import Microphone, Player
from rejoinder.pipeline.audio.chunk import Samples


class TimedCaller:
    """One call by the loop's clock.

    background: noise of the line, float32 of shape (n,) at 24 kHz. room: brings what is played back to the
    microphone, None for no echo.
    """

    def __init__(self, background: Samples | None = None, room: Room | None = None) -> None:
        self.player = Player()
        self.microphone = Microphone(background, partial(room.echo, self.player) if room else None)
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._tick = asyncio.Event()

    @property
    def now(self) -> int:
        """Samples at 24 kHz since the call began, by the loop's clock."""
        return int((self._loop.time() - self._began) * CLIENT_RATE)

    def say(self, audio: Samples) -> int:
        """Queue speech, float32 of shape (n,) at 24 kHz. Return the sample of the call at which it begins."""
        return self.microphone.say(audio)

    async def until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Wait until a condition holds, with one check per frame. Return False on timeout.

        Cancelling ends the wait, and changes nothing else.
        """
        deadline = self._loop.time() + seconds
        while not condition():
            if self._loop.time() > deadline:
                return False
            await self._next_frame()
        return True

    def tracks(self) -> tuple[Samples, Samples]:
        """Return the spoken and the played audio so far, aligned: two float32 arrays of one shape (n,)."""
        said = self.microphone.track()
        return said, self.player.track(len(said))

    async def _next_frame(self) -> None:
        await self._tick.wait()

    def _frame_sent(self) -> None:
        """Let those who wait for the next frame look."""
        self._tick.set()
        self._tick = asyncio.Event()
