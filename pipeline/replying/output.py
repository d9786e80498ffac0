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

    gate: the reply's commit gate. playout: its play-out clock.
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
        self._complete = self._answering = False
        self._filler_samples = 0
        self._filler: tuple[str, float] | None = None

    @property
    def synthesised(self) -> float:
        """The duration of the audio synthesised so far."""
        return self._synthesised

    @property
    def complete(self) -> bool:
        """Whether all of the reply is synthesised, or sent as text."""
        return self._complete

    @property
    def answering(self) -> bool:
        """Whether audio of the answer is ready: no filler begins or goes on."""
        return self._answering

    @property
    def filler(self) -> tuple[str, float] | None:
        """The words and the seconds sent of a filler that is not at its end; None once the answer begins."""
        return self._filler

    def committed(self) -> None:
        """Record that the commit gate opened."""
        self._move_deadline()

    def pause(self) -> None:
        """Record that nothing is sent until ``resume``."""
        now = _now()
        self.deadline.due, self.deadline.certain = None, False
        self.playout.pause(now)
        if self.playout.holds:
            self._listeners.hold(now)

    def resume(self) -> None:
        """Record that sending goes on at the sample where it paused."""
        now = _now()
        self.playout.resume(now)
        self._move_deadline()
        self._listeners.release(now)

    def cut(self) -> None:
        """Record that the audio stops playing now."""
        self._listeners.cut(_now())

    def add_synthesised(self, seconds: float) -> None:
        """Record that this much more audio is synthesised."""
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

    def begin_filler(self, words: str, skipped: float) -> None:
        """Record that a filler begins. skipped: the seconds of it that are left out."""
        self._filler = words, skipped

    def filler_chunk(self, chunk: AudioChunk) -> AudioChunk:
        """Return a filler's audio with its position in the reply."""
        return AudioChunk(chunk.pcm, chunk.rate, self._filler_samples)

    def sent_filler(self, text: str, chunk: AudioChunk) -> float:
        """Record that audio of a filler was sent; return the seconds to wait before sending more.

        text: the filler's words with its first audio, "" with the rest.
        """
        now = _now()
        self._filler_samples += len(chunk)
        if self._filler:
            self._filler = self._filler[0], self._filler[1] + chunk.seconds
        wait = self.playout.sent_filler(chunk.seconds, now)
        self._move_deadline()
        self._listeners.play(chunk, now + self.playout.left(now) - chunk.seconds, text, self._turn)
        return wait

    def end_filler(self) -> None:
        """Record that a filler was spoken to its end."""
        self._filler = None

    def answer(self) -> int:
        """Record that the answer's first audio is ready; return the samples of fillers before it."""
        self._answering, self._filler = True, None
        return self._filler_samples

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
            sent = self.playout.seconds - self.playout.filled
            self.deadline.due = now + self.playout.left(now) + self._synthesised - sent


def _now() -> float:
    return asyncio.get_running_loop().time()
