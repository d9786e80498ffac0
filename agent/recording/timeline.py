"""Places both sides of a call on one clock: what the agent hears, and what the caller hears of the agent."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace

from rejoinder.pipeline import RATE, AudioChunk
from rejoinder.pipeline.audio.echo import MOST_AGAIN_SECONDS

MAY_CHANGE_SECONDS = 4.0
"""How long audio can still change, in seconds: a client reports what it has played some time after a cut."""
LEAST_BLOCK_SECONDS = 2.0
"""Least audio that is taken at once, in seconds: each time wakes the thread that writes."""
MOST_BLOCK_SECONDS = 10.0
"""Most audio that is taken at once, in seconds: a block is in memory several times while it is written."""
LATE_SECONDS = 0.1
"""Audio of the caller that comes later than this, in seconds, does not follow the audio before it."""
FOLLOWS_SECONDS = 0.002
"""Audio of the agent that begins within this time of the end of the last follows it: lengths are rounded."""
OLDER_SECONDS = 0.6
"""Longest audio of a running call, in seconds, that may wait to be read when a recording begins."""


@dataclass(frozen=True, slots=True)
class CallerAudio:
    """Audio of the caller: 16 kHz, 16-bit. at: its first sample in the recording."""

    at: int
    pcm: bytes


@dataclass(frozen=True, slots=True)
class PlayedAudio:
    """Audio of the agent. at: where it begins in the recording, in samples at 16 kHz.

    follows: whether it continues the audio before it. turn: number of its reply. time: when it begins to
    play, by the loop's clock.
    """

    at: float
    follows: bool
    chunk: AudioChunk
    turn: int
    time: float

    def until(self, seconds: float) -> PlayedAudio:
        """Return the first ``seconds`` of it."""
        pcm = self.chunk.pcm[: 2 * round(seconds * self.chunk.rate)]
        return replace(self, chunk=replace(self.chunk, pcm=pcm))

    def after(self, seconds: float) -> AudioChunk:
        """Return what is behind the first ``seconds`` of its audio."""
        first = round(seconds * self.chunk.rate)
        return replace(self.chunk, pcm=self.chunk.pcm[2 * first :], start=self.chunk.start + first)


@dataclass(frozen=True, slots=True)
class RecordedBlock:
    """The audio of both sides from sample ``start`` to sample ``end``. The last chunk may be longer."""

    start: int
    end: int
    heard: Sequence[CallerAudio]
    played: Sequence[PlayedAudio]


class RecordingTimeline:
    """Both sides of a recording. It has no clock: times are those of the loop, in seconds.

    The clock of the recording is that of the server. The caller's audio is where it arrived, as early as its
    fastest message says; a client that sends faster than real time moves the clock on. began: when the
    recording begins. in_call: whether the call has begun before; then the first audio is partly older.
    """

    def __init__(self, began: float, in_call: bool = False) -> None:
        self._began = began
        self._older = OLDER_SECONDS * RATE if in_call else 0
        self._moved = 0  # samples by which audio that came faster than real time has moved the clock on
        self._taken = 0
        self._heard: deque[CallerAudio] = deque()
        self._heard_end = 0
        self._gap = (0, 0)
        self._played: deque[PlayedAudio] = deque()
        self._ends = float("-inf")
        self._played_end = 0.0
        self._held: list[PlayedAudio] | None = None
        self._last: deque[PlayedAudio] = deque()
        self._lasts = 0.0

    @property
    def heard_end(self) -> int:
        """The sample behind the caller's last one."""
        return self._heard_end

    def position(self, time: float) -> int:
        """Return the sample of the recording at a time."""
        return max(0, round((time - self._began) * RATE)) + self._moved

    # --- the caller -------------------------------------------------------------------------------------

    def hear(self, pcm: bytes, now: float) -> None:
        """Take the caller's next audio (16 kHz, 16-bit, mono), which arrived at ``now``."""
        if not (size := len(pcm) // 2):
            return
        older, self._older = round(min(self._older, size - self.position(now))), 0
        if older > 0:
            pcm, size = pcm[2 * older :], size - older
        late = self.position(now) - self._heard_end - size
        if late > LATE_SECONDS * RATE:
            self._gap = (self._heard_end, self._heard_end + late)
            self._heard_end += late
        elif late < 0:
            self._close_gap(-late)
        self._heard.append(CallerAudio(self._heard_end, pcm))
        self._heard_end += size

    def _close_gap(self, early: int) -> None:
        """Take audio that would be in the future: the last gap was a delay, or else the clock moves on."""
        begin, end = self._gap
        back = min(early, max(0, end - max(begin, self._taken)))
        if back:
            for place, one in enumerate(self._heard):
                if one.at >= end:
                    self._heard[place] = CallerAudio(one.at - back, one.pcm)
            self._gap = (begin, end - back)
            self._heard_end -= back
        self._moved += early - back

    # --- the agent, as a ``PlayoutListener`` ------------------------------------------------------------

    def play(self, chunk: AudioChunk, at: float, text: str = "", turn: int = 0) -> None:
        """Take audio of the agent that plays at time ``at``."""
        if not len(chunk) or at + chunk.seconds <= self._began:
            return
        self._place(chunk, at, turn)
        self._last.append(self._played[-1])
        self._lasts += chunk.seconds
        while self._lasts > MOST_AGAIN_SECONDS:
            self._lasts -= self._last.popleft().chunk.seconds

    def _place(self, chunk: AudioChunk, at: float, turn: int) -> None:
        follows = abs(at - self._ends) < FOLLOWS_SECONDS and self._played_end >= self._taken
        begin = self._played_end if follows else float(max(self.position(at), self._taken))
        self._played_end = begin + chunk.seconds * RATE
        self._ends = at + chunk.seconds
        self._played.append(PlayedAudio(begin, follows, chunk, turn, at))

    def hold(self, at: float) -> None:
        """Take that the client holds the audio behind ``at`` until ``release``."""
        if self._held is None:
            self._held = self._cut(at)

    def release(self, at: float) -> None:
        """Take that the client plays the audio that it held, from ``at`` on."""
        held, self._held = self._held, None
        for one in held or ():
            self._place(one.chunk, at, one.turn)
            at += one.chunk.seconds

    def cut(self, at: float) -> None:
        """Take that nothing plays from ``at`` on."""
        self._held = None
        self._cut(at)

    def _cut(self, at: float) -> list[PlayedAudio]:
        """Remove the audio behind ``at``, and return it."""
        removed: list[PlayedAudio] = []
        while self._played and (last := self._played[-1]).time + last.chunk.seconds > at:
            self._played.pop()
            kept = max(0.0, at - last.time)
            removed.append(replace(last, chunk=last.after(kept)))
            if kept:
                self._played.append(last.until(kept))
                break
        if removed:
            self._ends = float("-inf")
        return removed[::-1]

    def truncate(self, turn: int, seconds: float) -> None:
        """Take that the client played only ``seconds`` of reply ``turn``."""
        kept: deque[PlayedAudio] = deque()
        whole = True
        for one in self._played:
            left = seconds - one.chunk.start / one.chunk.rate
            if one.turn != turn or left >= one.chunk.seconds:
                kept.append(one if whole else replace(one, follows=False))
                whole = True
                continue
            whole = False
            if left > 0:
                kept.append(one.until(left))
        self._played = kept
        if not whole:
            self._ends = float("-inf")
        if self._held is not None:
            self._held = [one for one in self._held if one.turn != turn]

    def play_again(self, seconds: float, at: float) -> None:
        """Take that the last ``seconds`` of the audio play again from ``at`` on, and nothing else."""
        self.cut(at)
        again: list[PlayedAudio] = []
        while self._last and seconds > FOLLOWS_SECONDS:
            again.append(self._last.pop())
            self._lasts -= again[-1].chunk.seconds
            seconds -= again[-1].chunk.seconds
        for one in reversed(again):
            self.play(one.chunk, at, turn=one.turn)
            at += one.chunk.seconds

    # --- for the file -----------------------------------------------------------------------------------

    def take(self, now: float, whole: bool = False) -> RecordedBlock | None:
        """Return the next audio that no longer changes, None while there is too little, or at the end.

        whole: return it up to ``now``, because the recording ends.
        """
        end = self.position(now) - (0 if whole else round(MAY_CHANGE_SECONDS * RATE))
        if end - self._taken < (1 if whole else LEAST_BLOCK_SECONDS * RATE):
            return None
        end = min(end, self._taken + round(MOST_BLOCK_SECONDS * RATE))
        if whole:
            self._cut(now)
        heard: list[CallerAudio] = []
        while self._heard and self._heard[0].at < end:
            one = self._heard.popleft()
            if one.at + len(one.pcm) // 2 > end:
                size = 2 * (end - one.at)
                self._heard.appendleft(CallerAudio(end, one.pcm[size:]))
                one = CallerAudio(one.at, one.pcm[:size])
            heard.append(one)
        self._heard_end = max(self._heard_end, end)
        played = [one for one in self._played if one.at < end]
        self._played = deque(one for one in self._played if one.at >= end)
        start, self._taken = self._taken, end
        return RecordedBlock(start, end, heard, played)
