"""Labelled silences: real ends of utterances, and pauses of a speaker who goes on.

A pause at a cut follows shorter speech than the end of the whole recording. A detector that has only learnt
"long means over" would look good. So each cut recording gives two cases of about equal length: its beginning
up to the cut, which is a pause, and an equally long piece up to its end, which is an end.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import numpy as np

from rejoinder.agent.bench.cases.recordings import Recording, background, hop_power, speech_end
from rejoinder.pipeline.audio.chunk import RATE, Samples
from rejoinder.pipeline.audio.loudness import HOP_SAMPLES

SMOOTH_HOPS = 6
"""Shortest gap between words, in hops (60 ms): the closure of a plosive is shorter."""
LEAST_SPEECH_SECONDS = 0.8
"""Least speech on each side of a gap: after less speech, an end cannot be told from a pause."""
GAP_BELOW_SPEECH_DB = 12.0
"""The level of a gap is at least this far below the level of speech."""
NATURAL_SECONDS = 0.2
"""Shortest pause that counts as the speaker's own, as in eot-bench's comparison reports."""
OWN_END_SECONDS = 0.3
"""Least silence of a recording after its last word that is kept as the silence of the end."""
HOLD_SECONDS = (0.3, 2.0)
"""Range of the length of an inserted pause, in seconds."""
FADE_SECONDS = 0.06
"""Length of the fade before an inserted silence, at ends and at pauses: a hard cut is unlike a real pause."""
AFTER_END_SECONDS = 2.5
"""Silence after an end: longer than any detector under test waits."""


@dataclass(frozen=True, slots=True)
class Case:
    """Speech and the silence after it.

    audio: float32 of shape (n,) at 16 kHz. at: sample at which the silence begins. seconds: its length before
    the speaker goes on, None at the end of a turn. natural: whether the recording itself has the silence.
    condition: the line on which it is heard (``conditions``).
    """

    set: str
    file: str
    speaker: str
    audio: Samples
    at: int
    seconds: float | None
    natural: bool = False
    condition: str = "clean"

    @property
    def resumes(self) -> int | None:
        """The sample at which the speaker goes on, None if the turn is over."""
        return None if self.seconds is None else self.at + int(self.seconds * RATE)


def cases(recording: Recording) -> list[Case]:
    """Return the cases of a recording: its end, its own pauses, and a pair of about equal length."""
    whole = recording.load(RATE)
    audio = whole[: speech_end(whole, RATE)]
    found = [_own_end(recording, whole, len(audio))] if len(audio) else []
    if len(audio) < 2 * LEAST_SPEECH_SECONDS * RATE:
        return found
    for begin, goes_on in silences(audio):
        seconds = (goes_on - begin) / RATE
        found.append(Case(*_about(recording), audio[: goes_on + RATE], begin, seconds, natural=True))
    return found + _pair(recording, whole, audio)


def _pair(recording: Recording, whole: Samples, audio: Samples) -> list[Case]:
    places = gaps(audio)
    if not places:
        return []
    draw = Random(f"0 {recording.path.name}")  # the same cuts each time, so that figures can be compared
    cut = draw.choice(places)
    seconds = draw.uniform(*HOLD_SECONDS)
    silence = background(whole, RATE, seconds)
    held = np.concatenate((_faded(audio[:cut]), silence, audio[cut : cut + RATE]))
    about_as_long = audio[min(places, key=lambda place: abs(len(audio) - place - cut)) :]
    return [Case(*_about(recording), held, cut, seconds), _end(recording, whole, about_as_long)]


def _own_end(recording: Recording, whole: Samples, at: int) -> Case:
    """Return the end with the recording's own silence, as the natural pauses have theirs."""
    end = at + int(AFTER_END_SECONDS * RATE)
    if len(whole) - at < OWN_END_SECONDS * RATE:
        return _end(recording, whole, whole[:at])
    missing = max(0, end - len(whole)) / RATE
    more = [background(whole, RATE, missing)] if missing else []
    return Case(*_about(recording), np.concatenate((whole[:end], *more)), at, None, natural=True)


def _end(recording: Recording, whole: Samples, speech: Samples) -> Case:
    silence = background(whole, RATE, AFTER_END_SECONDS)
    return Case(*_about(recording), np.concatenate((_faded(speech), silence)), len(speech), None)


def _about(recording: Recording) -> tuple[str, str, str]:
    return recording.set, recording.path.name, recording.speaker


def gaps(audio: Samples) -> list[int]:
    """Return the middles of the quiet moments between words, at least 0.2 s apart."""
    levels = _smooth_levels(audio)
    loud = np.percentile(levels, 95)
    least = int(LEAST_SPEECH_SECONDS * 100)
    places = []
    for hop in range(least, len(levels) - least):
        near = levels[max(0, hop - 10) : hop + 11]
        if levels[hop] == near.min() and levels[hop] < loud - GAP_BELOW_SPEECH_DB:
            places.append(hop * HOP_SAMPLES + SMOOTH_HOPS * HOP_SAMPLES // 2)
    return places


def silences(audio: Samples) -> Iterator[tuple[int, int]]:
    """Yield the pauses inside a recording, by level, that last 0.2 s or more."""
    levels = _smooth_levels(audio)
    floor, loud = np.percentile(levels, (5, 95))
    quiet = np.flatnonzero(levels < max(loud - 30.0, min(floor + 6.0, loud - 20.0)))
    for run in np.split(quiet, np.flatnonzero(np.diff(quiet) > 1) + 1):
        if not len(run):
            continue
        begin, end = (
            int(run[0]) * HOP_SAMPLES + SMOOTH_HOPS * HOP_SAMPLES // 2,
            int(run[-1]) * HOP_SAMPLES + SMOOTH_HOPS * HOP_SAMPLES // 2,
        )
        far = begin >= LEAST_SPEECH_SECONDS * RATE and len(audio) - end >= LEAST_SPEECH_SECONDS * RATE / 2
        if far and end - begin >= NATURAL_SECONDS * RATE:
            yield begin, end


def _faded(speech: Samples) -> Samples:
    faded = speech.copy()
    tail = faded[-int(FADE_SECONDS * RATE) :]
    tail *= np.linspace(1.0, 0.0, len(tail), dtype=np.float32)
    return faded


def _smooth_levels(audio: Samples) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    smooth = np.convolve(hop_power(audio, HOP_SAMPLES), np.ones(SMOOTH_HOPS) / SMOOTH_HOPS, mode="valid")
    levels: np.ndarray[tuple[int], np.dtype[np.float64]] = 10 * np.log10(smooth + 1e-12)
    return levels
