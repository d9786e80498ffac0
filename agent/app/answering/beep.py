"""Finds beeps in a telephone line's audio: steady sines, such as the tone after a greeting."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rejoinder.pipeline.audio.chunk import RATE, Samples

FRAME = 512
"""Samples of one spectrum: 32 ms at 16 kHz."""
HOP = 256
"""Samples between two spectra: 16 ms."""
BIN_HZ = RATE / FRAME
"""Distance of two points of a spectrum, in hertz."""
BAND_HZ = (200.0, 3_600.0)
"""What of the spectrum counts: a telephone line's band."""
TONE_HZ = (380.0, 2_100.0)
"""Range of a beep's frequency. Answering machines beep at 400 to 1,400 Hz; the last of three tones that
announce a failed call has 1,777 Hz (ITU-T E.180)."""
LOBE = 2
"""Points on each side of the peak that hold a sine's energy: the main lobe of the window."""
PURITY = 0.9
"""Least share of a tone's energy in the band. A line's noise 12 dB below the tone leaves 0.965."""
DRIFT = 0.012
"""Most that the frequency may differ from a tone's mean so far to belong to it, as a share."""
STEADY_HZ = 0.005
"""Most that the frequency may range within a beep, as a share. Noise 12 dB below it makes that 0.004; voices
that are as pure for 0.1 s range over 0.006 to 0.02."""
STEADY_DB = 1.5
"""Most that the level may range within a beep, in decibels."""
OUTLIERS = 10
"""One in this many frames, at each end of both ranges, does not count: clicks on the line."""
MOST_LOST = 2
"""Most successive frames that a noise may hide within a beep."""
ONSET_DB = 6.0
"""Least that a beep is louder than what was heard ``ONSET_FRAMES`` before it, unless that was a beep."""
ONSET_FRAMES = 2
"""Frames from the level before a tone to its first frame: half of each frame is the next one's."""
LEAST_DBFS = -50.0
"""Least level of a beep."""
SHORTEST_BEEP_S = 0.09
"""Shortest beep, in seconds."""
LONGEST_BEEP_S = 2.0
"""Longest beep, in seconds: a longer tone is a line's own, or a fax machine."""
MOST_FRAMES = int(LONGEST_BEEP_S * RATE / HOP)
"""Most frames of a tone that are kept."""

Spectrum = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Beep:
    """A tone that has ended. start, end: samples at 16 kHz, as exact as one ``HOP``. hz: its frequency."""

    start: int
    end: int
    hz: float

    @property
    def seconds(self) -> float:
        """Its length in seconds."""
        return (self.end - self.start) / RATE


@dataclass(slots=True)
class _Tone:
    """A tone that sounds: its first frame's first sample, and the frequency and level of each frame.

    before: the level of the sound before it, in dBFS. lost: the frames since its last one. frames: from its
    first to its last one.
    """

    first: int
    before: float
    hz: list[float]
    levels: list[float]
    lost: int = 0
    frames: int = 1

    def goes_on(self, hz: float) -> bool:
        return abs(hz - self.hz[len(self.hz) // 2]) <= DRIFT * hz

    def extend(self, hz: float, level: float) -> None:
        self.frames, self.lost = self.frames + self.lost + 1, 0
        if len(self.hz) <= MOST_FRAMES:
            self.hz.append(hz)
            self.levels.append(level)

    def beep(self) -> Beep | None:
        """Return the tone if it was a beep. Its first and last frame hold only a part of it."""
        hz, levels = sorted(self.hz[1:-1]), sorted(self.levels[1:-1])
        # Frames reach beyond the tone by up to half of their length: their edges weigh little.
        end = self.first + (self.frames - 1) * HOP + FRAME * 3 // 4
        beep = Beep(self.first + FRAME // 4, end, sum(self.hz) / len(self.hz))
        if not (hz and SHORTEST_BEEP_S <= beep.seconds <= LONGEST_BEEP_S):
            return None
        few = len(hz) // OUTLIERS
        hz, levels = hz[few : len(hz) - few], levels[few : len(levels) - few]
        steady = hz[-1] - hz[0] <= STEADY_HZ * beep.hz and levels[-1] - levels[0] <= STEADY_DB
        return beep if steady and levels[0] - self.before >= ONSET_DB else None


class BeepDetector:
    """Finds the beeps of one call. start: position of the first sample that it will get."""

    def __init__(self, start: int = 0) -> None:
        self._rest: Samples = np.zeros(0, np.float32)
        self._position = start  # of the first sample in ``_rest``
        self._tone: _Tone | None = None
        self._before = [LEAST_DBFS - ONSET_DB] * ONSET_FRAMES
        self._window = np.hanning(FRAME)
        low, high = (int(hz / BIN_HZ) for hz in BAND_HZ)
        self._band = slice(low, high + 1)

    def feed(self, audio: Samples) -> list[Beep]:
        """Take the next audio, float32 of shape (n,) at 16 kHz; return the beeps that have ended in it."""
        audio = np.concatenate((self._rest, audio))
        count = max(0, (len(audio) - FRAME) // HOP + 1)
        found = []
        if count:
            frames = np.lib.stride_tricks.sliding_window_view(audio, FRAME)[::HOP][:count]
            power = np.abs(np.fft.rfft(frames * self._window, axis=1)) ** 2
            levels = 10 * np.log10(np.mean(np.square(frames, dtype=np.float64), axis=1) + 1e-12)
            for place in range(count):
                ended = self._take(self._position + place * HOP, power[place], float(levels[place]))
                found += [ended] if ended else []
        self._rest, self._position = audio[count * HOP :].copy(), self._position + count * HOP
        return found

    def _take(self, at: int, power: Spectrum, level: float) -> Beep | None:
        hz = self._pure_hz(power) if level > LEAST_DBFS else None
        if self._tone and hz and self._tone.goes_on(hz):
            self._tone.extend(hz, level)
            self._before = [*self._before[1:], level]
            return None
        if self._tone and not hz and self._tone.lost < MOST_LOST:
            self._tone.lost += 1
            self._before = [*self._before[1:], level]
            return None
        ended = self._tone.beep() if self._tone else None
        if ended:
            self._before = [LEAST_DBFS - ONSET_DB] * ONSET_FRAMES  # another beep may follow it without a gap
        self._tone = _Tone(at, self._before[0], [hz], [level]) if hz else None
        self._before = [*self._before[1:], level]
        return ended

    def _pure_hz(self, power: Spectrum) -> float | None:
        """Return the frequency of a spectrum with a single tone, None for any other."""
        band = power[self._band]
        peak = int(np.argmax(band)) + self._band.start
        tone = float(power[peak - LOBE : peak + LOBE + 1].sum())
        if tone < PURITY * float(band.sum()):
            return None
        # A parabola through the logarithms of the three highest points gives the frequency between them.
        left, top, right = np.log(power[peak - 1 : peak + 2] + 1e-20)
        hz = (peak + 0.5 * (left - right) / (left - 2 * top + right)) * BIN_HZ
        return float(hz) if TONE_HZ[0] <= hz <= TONE_HZ[1] else None
