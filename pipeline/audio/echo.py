"""Removes the agent's own voice from the microphone signal, before voice activity detection.

An open loudspeaker plays the agent into the microphone, with an unknown delay and the sound of the room.
``Echo`` receives the agent's audio with its play-out times. It subtracts the estimated echo, and attenuates
the rest where that may still be echo: most of it in the first second, almost nothing later or without echo.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from rejoinder.pipeline.audio.chunk import RATE, AudioChunk, Samples, to_pcm
from rejoinder.pipeline.audio.echo_path import BLOCKS, ECHO_BLOCK, EchoPath
from rejoinder.pipeline.audio.resample import ToSession

NONE = 1e-3
"""Relative power of the echo below which there is none: a headset, or a client that cancels its echo."""
GAP_SECONDS = 0.002
"""Audio that begins within this time of the end of the last audio follows it: lengths are rounded."""
MOST_AGAIN_SECONDS = 8
"""Most seconds of audio that a returning client receives again: the size of a call's outbox."""
AHEAD = MOST_AGAIN_SECONDS * RATE
"""Samples of planned play-out that are kept; play-out is never further ahead."""
EARLY_WORDS = RATE // 2
"""How long before the planned start of a clause its words may be heard, in samples."""
LATE_WORDS = RATE
"""How long after the planned end of a clause its words may be heard, in samples."""

_NOTHING: Samples = np.zeros(0, np.float32)


class Echo:
    """Echo removal for one session. It has no clock and does no I/O; times are ``loop.time()`` in seconds.

    It uses processor time only while the agent speaks, and for one second after that.
    path: the estimated echo path.
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
        self._returned = 0
        self._gain = 1.0

    @property
    def possible(self) -> bool:
        """Whether the microphone may pick up the agent, by the current estimate."""
        return self.path.level > NONE

    def play(self, chunk: AudioChunk, at: float, text: str = "", turn: int = 0) -> None:
        """Record that ``chunk`` plays at time ``at``; ``text`` is the clause that begins with it."""
        if not self._late:  # no microphone audio has arrived, so the time has no sample yet
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
        self._place(self._resampler.feed(chunk.pcm))

    def hold(self, at: float) -> None:
        """Record that the client holds the audio planned after ``at`` until ``release``."""
        if self._held is None:
            self._held = self._take(self._sample(at))

    def release(self, at: float) -> None:
        """Record that play-out resumes at ``at`` with the audio that the client holds."""
        self.path.doubt()
        held, self._held = self._held, None
        if held is not None:
            self._end, self._ends = self._sample(at), at + len(held) / RATE
            self.path.shift()
            self._place(held)

    def cut(self, at: float) -> None:
        """Record that nothing plays from ``at`` on."""
        self._held = None
        self._take(self._sample(at))

    def truncate(self, turn: int, seconds: float) -> None:
        """Do nothing: what a client reports comes too late for audio that was removed."""

    def play_again(self, seconds: float, at: float) -> None:
        """Record that the last ``seconds`` of the audio play again from ``at`` on, and nothing else."""
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
        while self._lasts > MOST_AGAIN_SECONDS:
            self._lasts -= self._last.popleft()[0].seconds

    def saying(self, sample: int) -> str:
        """Return the clauses that the microphone may pick up at ``sample``, "" for none."""
        near = (
            text for begin, end, text in self._clauses if begin - EARLY_WORDS <= sample <= end + LATE_WORDS
        )
        return " ".join(near) if self.possible else ""

    def hear(self, chunk: AudioChunk, now: float) -> AudioChunk:
        """Return the microphone audio without the agent's voice.

        While the agent may be audible, it works on whole blocks and keeps the rest of the audio for the next
        call; an empty chunk returns that rest.
        """
        self._clock(chunk, now)
        if not len(self._rest) and chunk.start >= self._until:
            self._returned = chunk.end
            return chunk
        place, audio = chunk.end - len(self._rest) - len(chunk), np.concatenate((self._rest, chunk.samples()))
        returned, clean, speaks = max(self._returned, place), [_NOTHING], place < self._until
        while speaks and (size := ECHO_BLOCK - place % ECHO_BLOCK) <= len(audio):
            block, audio = audio[:size], audio[size:]
            clean.append(
                (self._block(place, block) if size == ECHO_BLOCK else block)[max(0, returned - place) :]
            )
            place += size
            self._returned = max(returned, place)
        if not (speaks and self.possible and len(chunk)):
            clean.append(audio[max(0, self._returned - place) :])
            self._returned = chunk.end
        self._rest = audio if speaks else _NOTHING
        return AudioChunk(to_pcm(np.concatenate(clean)), RATE, returned)

    def _block(self, place: int, block: Samples) -> Samples:
        for skipped in range(max(self._done, place - BLOCKS * ECHO_BLOCK), place, ECHO_BLOCK):
            self.path.play(self._plan_at(skipped))
        self._done = place + ECHO_BLOCK
        self.path.play(self._plan_at(place))
        left, share = self.path.hear(block)
        if not self.possible:
            self._gain = 1.0
            return block
        gains = np.linspace(self._gain, share, ECHO_BLOCK, dtype=np.float32)
        self._gain = share
        return left * gains

    # --- the planned play-out, in samples of the microphone -----------------------------------------------

    def _clock(self, chunk: AudioChunk, now: float) -> None:
        """Estimate when samples arrive, from the chunks with the least delay in this second and the last."""
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
        self._until = self._end + BLOCKS * ECHO_BLOCK
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
        """Return the block that plays at sample ``place``, and drop the plan before it."""
        passed = min(max(0, place - self._planned), AHEAD)
        self._plan = np.concatenate((self._plan[passed:], np.zeros(passed, np.float32)))
        self._planned = place
        return self._plan[:ECHO_BLOCK].copy()
