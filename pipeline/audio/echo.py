"""The agent's own voice in the user's microphone, taken out before anybody looks for speech there.

An open loudspeaker plays the agent into the microphone: later by an unknown buffer, network and room,
coloured by the room. ``Echo`` is told what the agent says and when that is heard by the play-out clock. It
subtracts the echo that it expects, and turns down what is left as far as that may still be echo: most of it
in the first second, next to nothing later, or where there is no echo at all.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from rejoinder.pipeline.audio.chunk import RATE, AudioChunk, Samples, to_pcm
from rejoinder.pipeline.audio.echo_path import BLOCK, BLOCKS, EchoPath
from rejoinder.pipeline.audio.resample import ToSession

NONE = 1e-3
"""Power of the echo against what is played below which it is none: a headset, or a client that cancels."""
GAP_SECONDS = 0.002
"""Speech that begins within this of the end of other speech follows it: the lengths of slices are rounded."""
AGAIN = 8
"""Seconds that a client may be sent again when it comes back: what the outbox of a call holds."""
AHEAD = AGAIN * RATE
"""Samples to be played that are kept: play-out is never further ahead."""
EARLY, LATE = RATE // 2, RATE
"""From so long before a clause begins by the clock, until so long after its end, its words may be heard."""

_NOTHING: Samples = np.zeros(0, np.float32)


class Echo:
    """The echo of one session. Holds no clock and does no I/O; times are ``loop.time()``, in seconds.

    It takes time only while the agent speaks, and a second longer.
    """

    def __init__(self) -> None:
        self.path = EchoPath()
        self._clauses: deque[tuple[int, int, str]] = deque(maxlen=16)
        self._second = -1
        self._late: deque[float] = deque(maxlen=2)
        self._last: deque[tuple[AudioChunk, str]] = deque()
        self._lasts = 0.0
        self._plan: Samples = np.zeros(AHEAD, np.float32)
        self._planned = self._end = self._until = self._done = 0
        self._ends = 0.0
        self._held: Samples | None = None
        self._resampler = ToSession(RATE)
        self._rest = _NOTHING
        self._told = 0
        self._gain = 1.0

    @property
    def possible(self) -> bool:
        """Tell whether the microphone hears the agent, as far as is known."""
        return self.path.level > NONE

    def play(self, chunk: AudioChunk, at: float, text: str = "") -> None:
        """Note that ``chunk`` is played at time ``at``; ``text`` is the clause that begins with it."""
        if not self._late:  # nothing was heard yet, so nobody knows where in the microphone's audio that is
            return
        self._remember(chunk, text)
        if chunk.rate != self._resampler.rate:
            self._resampler = ToSession(chunk.rate)
        if abs(at - self._ends) > GAP_SECONDS:
            self._end = self._sample(at)
            self.path.shift()
        self._ends = at + chunk.seconds
        if text:
            self._clauses.append((self._end, self._end, text))
        self._place(self._resampler.feed(chunk))

    def hold(self, at: float) -> None:
        """Note that the client keeps what is to be played after ``at`` until it is told to go on."""
        if self._held is None:
            self._held = self._take(self._sample(at))

    def release(self, at: float) -> None:
        """Note that the reply goes on after a sound that was no interruption: with what the client keeps."""
        self.path.doubt()
        held, self._held = self._held, None
        if held is not None:
            self._end, self._ends = self._sample(at), at + len(held) / RATE
            self.path.shift()
            self._place(held)

    def cut(self, at: float) -> None:
        """Note that nothing is played from ``at`` on."""
        self._held = None
        self._take(self._sample(at))

    def play_again(self, seconds: float, at: float) -> None:
        """Note that from ``at`` on the last ``seconds`` of what was to be played are, and nothing else."""
        self.cut(at)
        self._resampler = ToSession(self._resampler.rate)
        last = []
        while self._last and seconds > GAP_SECONDS:
            last.append(self._last.pop())
            seconds -= last[-1][0].seconds
        self._lasts -= sum(chunk.seconds for chunk, _ in last)
        for chunk, text in reversed(last):
            self.play(chunk, at, text)
            at += chunk.seconds

    def _remember(self, chunk: AudioChunk, text: str) -> None:
        self._last.append((chunk, text))
        self._lasts += chunk.seconds
        while self._lasts > AGAIN:
            self._lasts -= self._last.popleft()[0].seconds

    def saying(self, sample: int) -> str:
        """Return the clauses that the microphone may hear at that sample, "" if it hears none."""
        near = (text for begin, end, text in self._clauses if begin - EARLY <= sample <= end + LATE)
        return " ".join(near) if self.possible else ""

    def hear(self, chunk: AudioChunk, now: float) -> AudioChunk:
        """Return the audio without the agent's voice: while that may be in it, a block at a time.

        An empty chunk asks for what is left.
        """
        self._clock(chunk, now)
        if not len(self._rest) and chunk.start >= self._until:
            self._told = chunk.end
            return chunk
        place, audio = chunk.end - len(self._rest) - len(chunk), np.concatenate((self._rest, chunk.samples()))
        told, clean, speaks = max(self._told, place), [_NOTHING], place < self._until
        while speaks and (size := BLOCK - place % BLOCK) <= len(audio):
            block, audio = audio[:size], audio[size:]
            clean.append((self._block(place, block) if size == BLOCK else block)[max(0, told - place) :])
            place += size
            self._told = max(told, place)
        if not (speaks and self.possible and len(chunk)):
            clean.append(audio[max(0, self._told - place) :])
            self._told = chunk.end
        self._rest = audio if speaks else _NOTHING
        return AudioChunk(to_pcm(np.concatenate(clean)), RATE, told)

    def _block(self, place: int, block: Samples) -> Samples:
        for skipped in range(max(self._done, place - BLOCKS * BLOCK), place, BLOCK):
            self.path.play(self._plan_at(skipped))
        self._done = place + BLOCK
        self.path.play(self._plan_at(place))
        left, share = self.path.hear(block)
        if not self.possible:
            self._gain = 1.0
            return block
        gains = np.linspace(self._gain, share, BLOCK, dtype=np.float32)
        self._gain = share
        return left * gains

    # --- what is played when, in samples of the microphone ------------------------------------------------

    def _clock(self, chunk: AudioChunk, now: float) -> None:
        """Learn when samples arrive: the earliest ones of this second and the last were delayed least."""
        late = now - chunk.end / RATE
        if chunk.end // RATE != self._second:
            self._second = chunk.end // RATE
            self._late.append(late)
        self._late[-1] = min(self._late[-1], late)

    def _sample(self, at: float) -> int:
        return int((at - min(self._late)) * RATE) if self._late else 0

    def _place(self, audio: Samples) -> None:
        first = self._end - self._planned
        room = self._plan[max(0, first) : max(0, first + len(audio))]
        room[:] = audio[max(0, -first) :][: len(room)]
        self._end += len(audio)
        self._until = self._end + BLOCKS * BLOCK
        if self._clauses:
            begin, _, text = self._clauses.pop()
            self._clauses.append((begin, self._end, text))

    def _take(self, sample: int) -> Samples:
        first, last = max(0, sample - self._planned), max(0, self._end - self._planned)
        taken = self._plan[first:last].copy()
        self._plan[first:last] = 0.0
        self._end = min(self._end, sample)
        return taken

    def _plan_at(self, place: int) -> Samples:
        """Return the block that is played at sample ``place``; what was before it is forgotten."""
        passed = min(max(0, place - self._planned), AHEAD)
        self._plan = np.concatenate((self._plan[passed:], np.zeros(passed, np.float32)))
        self._planned = place
        return self._plan[:BLOCK].copy()
