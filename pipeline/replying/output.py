"""What the client receives of a reply: how much is synthesised, sent and played."""

from __future__ import annotations

import asyncio

from rejoinder.pipeline.audio.chunk import AudioChunk, Words
from rejoinder.pipeline.audio.played import Listeners
from rejoinder.pipeline.engines.deadline import Deadline
from rejoinder.pipeline.replying.commit_gate import CommitGate
from rejoinder.pipeline.replying.playout import Playout


class Output:
    """The audio of one reply, or the text of a reply in text only. Durations are in seconds.

    gate: the reply's commit gate; only this class opens, pauses and resumes it. playout: its play-out clock.
    deadline: how soon the models' work for it is needed; only this class moves it.
    listeners: receive the audio with its times. turn: the reply's number.
    """

    def __init__(
        self,
        gate: CommitGate,
        playout: Playout,
        deadline: Deadline,
        listeners: Listeners | None = None,
        turn: int = 0,
    ) -> None:
        self.playout = playout
        self.deadline = deadline
        self._gate = gate
        self._listeners = listeners or Listeners()
        self._turn = turn
        self._synthesised = 0.0
        self._text = ""
        self._complete = False

    @property
    def synthesised(self) -> float:
        """The duration of the audio synthesised so far."""
        return self._synthesised

    @property
    def complete(self) -> bool:
        """Whether all of the reply is synthesised, or sent as text."""
        return self._complete

    def commit(self) -> None:
        """Open the commit gate."""
        self._gate.commit()
        self._move_deadline()

    def pause(self) -> None:
        """Pause the reply: nothing of it is sent until ``resume``, and nothing is lost."""
        self._gate.pause()
        now = _now()
        self.deadline.due, self.deadline.certain = None, False
        self.playout.pause(now)
        if self.playout.holds:
            self._listeners.hold(now)

    def resume(self) -> None:
        """Resume a paused reply at the sample where it paused."""
        if not self._gate.resume():
            return
        now = _now()
        self.playout.resume(now)
        self._move_deadline()
        self._listeners.release(now)

    def cut(self) -> None:
        """Record that the audio stops playing now."""
        self._listeners.cut(_now())

    def add_synthesised(self, seconds: float) -> None:
        """Record that this much more audio is synthesised; below 0 for audio that is dropped unsent."""
        self._synthesised += seconds
        self._move_deadline()

    def add_text(self, text: str) -> None:
        """Record that text was sent. It has no play-out that could run dry."""
        self._text += text
        self.deadline.due, self.deadline.certain = None, True

    def end(self) -> None:
        """Record that all of the reply is synthesised, or sent as text."""
        self._complete = True

    def sent(self, text: str, chunk: AudioChunk, words: Words) -> float:
        """Record that audio was sent; return the seconds to wait before sending more.

        text: the clause that begins with this audio, or "". words: the times of the clause's words, as far
        as they are known.
        """
        now = _now()
        wait = self.playout.sent(chunk.seconds, now, words)
        self._listeners.play(chunk, now + self.playout.left(now) - chunk.seconds, text, self._turn)
        return wait

    def heard(self, played: float) -> str:
        """Return the text heard in the first ``played`` seconds; for a reply in text only, all of it."""
        return self._text.strip() or self.playout.text(played)

    async def wait_played(self) -> None:
        """Wait until all audio that was sent has been played. Cancelling changes nothing."""
        await self._gate.wait_running()
        while left := self.playout.left(_now()):
            await asyncio.sleep(left)
            await self._gate.wait_running()

    def _move_deadline(self) -> None:
        """Set the deadline for more audio: the time at which the synthesised audio runs out."""
        if self._gate.committed and not self._gate.paused:
            now = _now()
            self.deadline.due = now + self.playout.left(now) + self._synthesised - self.playout.seconds


def _now() -> float:
    return asyncio.get_running_loop().time()
