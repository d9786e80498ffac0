"""Recordings of people for benches: lists them, samples them, and finds the end of their speech.

A folder has one subfolder per set, each with audio files and a ``manifest.jsonl``: one JSON object per line
with ``file``, ``text`` (null without a transcript), ``speaker`` and ``duration_s``.
"""

from __future__ import annotations

import json
import os
import random
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rejoinder.pipeline.audio.chunk import Samples
from rejoinder.pipeline.errors import PipelineError

VARIABLE = "REJOINDER_SPEECH"
"""Environment variable with the folder of the recordings."""
DEFAULT_FOLDER = Path(__file__).resolve().parents[3] / "../shared/speech"
"""Folder of the recordings if the environment names none."""
DEFAULT_SETS = ("assistant_utterances", "speechocean762_adult", "read_misc")
"""Sets of recordings that the benches take by default."""
MAX_RECORDING_SECONDS = 15.0
"""Longest recording that is sampled. Longer ones are monologues of several sentences, not turns."""

HOP_SECONDS = 0.01
"""Length of one step of the level, in seconds."""
LOUD_BELOW_SPEECH_DB = 20.0
"""A loud hop is at most this far below the level of speech."""
TAIL_BELOW_SPEECH_DB = 25.0
"""A hop of a word's decay is at most this far below the level of speech."""
PEAK_BELOW_SPEECH_DB = 10.0
"""The peak of the last burst is at most this far below the level of speech."""
ABOVE_FLOOR_DB = 6.0
"""A loud hop is at least this far above the noise floor, in decibels."""
GAP_HOPS = 20
"""Quiet hops that separate two bursts."""
TAIL_GAP_HOPS = 8
"""Quiet hops that end the decay of the last word."""
MIN_HOPS = 12
"""Fewest loud hops of a burst that holds a word."""


class RecordingsMissing(PipelineError):
    """No recordings were found. The message names the folder, and says how to set another one."""


@dataclass(frozen=True, slots=True)
class Recording:
    """One utterance on disk. text: its transcript, None if unknown. seconds: length of the file."""

    set: str
    path: Path
    speaker: str
    text: str | None
    seconds: float

    def load(self, rate: int) -> Samples:
        """Return the audio, mono float32 of shape (n,) at ``rate`` hertz. Raises RecordingsMissing."""
        import soundfile
        import soxr

        try:
            audio, native = soundfile.read(self.path, dtype="float32", always_2d=True)
        except (OSError, soundfile.SoundFileError) as error:
            raise RecordingsMissing(f"cannot read {self.path}: {error}") from error
        samples: Samples = soxr.resample(audio.mean(axis=1), native, rate)
        return samples.astype(np.float32)


def speech_folder(given: Path | None = None) -> Path:
    """Return the folder of recordings: the given one, ``$REJOINDER_SPEECH``, or one beside the checkout."""
    folder = given or Path(os.environ.get(VARIABLE) or DEFAULT_FOLDER)
    if not folder.expanduser().is_dir():
        raise RecordingsMissing(
            f"there is no folder of recordings {folder.resolve()}; name one with --speech or ${VARIABLE}"
        )
    return folder.expanduser().resolve()


def read_set(folder: Path, name: str) -> list[Recording]:
    """Return the recordings of a set in the order of its manifest. Raises RecordingsMissing."""
    manifest = folder / name / "manifest.jsonl"
    if not manifest.is_file():
        known = ", ".join(sorted(path.parent.name for path in folder.glob("*/manifest.jsonl"))) or "none"
        raise RecordingsMissing(f"there is no set {name!r}: no {manifest}; the sets in {folder} are: {known}")
    rows = [json.loads(line) for line in manifest.read_text(encoding="utf-8").splitlines() if line.strip()]
    return [
        Recording(name, manifest.parent / row["file"], row["speaker"], row.get("text"), row["duration_s"])
        for row in rows
    ]


def choose(folder: Path, names: Sequence[str], count: int, seed: int = 0) -> list[Recording]:
    """Return a sample of ``count`` recordings. Raises RecordingsMissing, also if a set is empty."""
    sets = [read_set(folder, name) for name in names]
    for name, recordings in zip(names, sets, strict=True):
        if not any(recording.seconds <= MAX_RECORDING_SECONDS for recording in recordings):
            words = f"of up to {MAX_RECORDING_SECONDS:.0f} s" if recordings else "at all"
            raise RecordingsMissing(f"the set {name!r} in {folder} has no recordings {words}")
    return sample(sets, count, seed)


def sample(sets: Sequence[Sequence[Recording]], count: int, seed: int = 0) -> list[Recording]:
    """Return at most ``count`` recordings, from each set in turn, with a new speaker of the set each time.

    The same arguments give the same recordings. A smaller count gives the first ones of a larger count.
    """
    generator = random.Random(seed)
    queues = [_by_turns(recordings, generator) for recordings in sets]
    taken: list[Recording] = []
    while len(taken) < count and any(queues):
        taken += [queue.pop(0) for queue in queues if queue]
    return taken[:count]


def _by_turns(recordings: Sequence[Recording], generator: random.Random) -> list[Recording]:
    """Return the recordings shuffled, one of each speaker before the second of any speaker."""
    short = [recording for recording in recordings if recording.seconds <= MAX_RECORDING_SECONDS]
    generator.shuffle(short)
    count: defaultdict[str, int] = defaultdict(int)
    rounds = []
    for recording in short:
        rounds.append(count[recording.speaker])
        count[recording.speaker] += 1
    return [short[place] for place in sorted(range(len(short)), key=rounds.__getitem__)]


def speech_end(audio: Samples, rate: int) -> int:
    """Return the index after the last sample of speech, by an energy rule that is independent of any VAD.

    The level is taken every 10 ms. A hop is loud within 20 dB of the recording's 95th percentile, and 6 dB
    above its noise floor (its 10th percentile); 10 dB below the 95th percentile is always loud.
    Loud hops less than 200 ms apart form a burst, so that the closure before a final "t" ends nothing. The
    last burst that has 120 ms of loud hops and comes within 10 dB of the 95th percentile holds the last word,
    so that neither a click nor a breath counts as speech. From there the word dies away as long as hops
    within 25 dB follow less than 80 ms apart: what comes after a longer dip is another breath.

    Against Silero (last window with a probability of 0.5) on the 188 recordings of the default sets: it
    differs by up to 200 ms on 91 % of them and is 66 ms (two windows) earlier at the median, so latencies are
    slightly longer than from Silero's ends. Where they disagree by more, the recording ends in breath or
    handling noise as loud as weak syllables.
    """
    hop = int(HOP_SECONDS * rate)
    levels = _levels(audio, hop)
    if not len(levels):
        return len(audio)
    loud = np.flatnonzero(levels > _least(levels, LOUD_BELOW_SPEECH_DB))
    bursts = np.split(loud, np.flatnonzero(np.diff(loud) > GAP_HOPS) + 1)
    peak = np.percentile(levels, 95) - PEAK_BELOW_SPEECH_DB
    spoken = [burst for burst in bursts if len(burst) >= MIN_HOPS and levels[burst].max() > peak] or bursts
    if not len(spoken[-1]):
        return len(audio)
    last = int(spoken[-1][-1])
    for place in np.flatnonzero(levels > _least(levels, TAIL_BELOW_SPEECH_DB)):
        if last < place <= last + TAIL_GAP_HOPS:
            last = int(place)
    return (last + 1) * hop


def speech_begin(audio: Samples, rate: int) -> int:
    """Return the index of the first sample of speech, by the same rule."""
    return len(audio) - speech_end(audio[::-1], rate)


def loud_hops(audio: Samples, rate: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """Return which hops of 10 ms are loud, by the same rule: bool of shape (hops,)."""
    levels = _levels(audio, int(HOP_SECONDS * rate))
    loud: np.ndarray[tuple[int], np.dtype[np.bool_]] = levels > _least(levels, LOUD_BELOW_SPEECH_DB)
    return loud


def background(audio: Samples, rate: int, seconds: float, seed: int = 0) -> Samples:
    """Return noise with the level and spectrum of a recording's quietest tenth of 20 ms frames.

    The phases are random: a loop of the recording itself would hum, and its seams would click. The noise can
    be repeated without a seam.
    """
    size, length = int(0.02 * rate), int(seconds * rate)
    if len(audio) < size:
        return np.zeros(length, np.float32)
    frames = audio[: len(audio) // size * size].astype(np.float64).reshape(-1, size)
    power = np.mean(frames**2, axis=1)
    quiet = np.argsort(power)[: max(1, len(frames) // 10)]
    colour = np.sqrt(np.mean(np.abs(np.fft.rfft(frames[quiet] * np.hanning(size))) ** 2, axis=0))
    bins = length // 2 + 1
    spread = np.interp(np.linspace(0, 1, bins), np.linspace(0, 1, len(colour)), colour)
    phases = np.exp(2j * np.pi * np.random.default_rng(seed).random(bins))
    noise = np.fft.irfft(spread * phases)
    loudness = np.sqrt(np.mean(noise**2))
    scaled = noise * (np.sqrt(np.mean(power[quiet])) / loudness) if loudness > 0 else noise
    return scaled.astype(np.float32)


def hop_power(audio: Samples, hop: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the mean square of each ``hop`` samples, shape (hops,); an incomplete last one is left out."""
    hops = audio[: len(audio) // hop * hop].astype(np.float64).reshape(-1, hop)
    power: np.ndarray[tuple[int], np.dtype[np.float64]] = np.mean(hops**2, axis=1)
    return power


def _levels(audio: Samples, hop: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return the level of each hop in dBFS."""
    levels: np.ndarray[tuple[int], np.dtype[np.float64]] = 10 * np.log10(hop_power(audio, hop) + 1e-12)
    return levels


def _least(levels: np.ndarray[tuple[int], np.dtype[np.float64]], below_speech: float) -> float:
    """Return the level in dBFS above which a hop is loud."""
    floor, speech = np.percentile(levels, (10, 95)) if len(levels) else (0.0, 0.0)
    return float(max(speech - below_speech, min(floor + ABOVE_FLOOR_DB, speech - 10.0)))
