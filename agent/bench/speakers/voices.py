"""The voices of the bench: callers with several utterances each, and what is heard behind them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal

import numpy as np

from rejoinder.agent.bench.cases.recordings import (
    HOP_SECONDS,
    MAX_RECORDING_SECONDS,
    Recording,
    RecordingsMissing,
    hop_power,
    loud_hops,
    read_set,
    speech_begin,
    speech_end,
)
from rejoinder.pipeline.audio.chunk import RATE, Samples

CALLER_SETS = ("speechocean762_adult", "speechocean762_more", "librispeech_test_other", "an4", "an4_more")
"""Sets with several utterances of each speaker, as they were recorded in one session."""
MEETINGS = "ami_meeting_excerpts"
"""The set of recordings of meetings."""
SPEAKER_PAIRS = "librispeechmix_2spk"
"""The set of mixtures of two speakers who talk at the same time."""
CALLER_DBFS = -26.0
"""Level of a caller's speech in the first utterance: that of a headset."""
LEAST_SECONDS = 0.8
"""Shortest utterance of a caller."""
Half = Literal["fit", "judge"]
"""Half of the speakers: constants are chosen on ``fit``, and ``judge`` reports them."""


@dataclass(frozen=True, slots=True)
class Speaker:
    """One speaker, and the utterances of one session, float32 at 16 kHz without silence at the edges."""

    name: str
    utterances: Sequence[Samples]


@dataclass(frozen=True, slots=True)
class Voices:
    """The voices of one half. sounds: longer recordings of several people, by set."""

    speakers: Sequence[Speaker]
    sounds: Mapping[str, Sequence[Samples]]


def voices(folder: Path, half: Half, seed: int) -> Voices:
    """Return the voices of one half of the speakers. Raises RecordingsMissing."""
    place = ("fit", "judge").index(half)
    found: defaultdict[str, list[Recording]] = defaultdict(list)
    for name in CALLER_SETS:
        for recording in read_set(folder, name):
            found[recording.speaker].append(recording)
    speakers = []
    for speaker in sorted(found)[place::2]:
        recordings = [each for each in found[speaker] if each.seconds <= MAX_RECORDING_SECONDS]
        Random(f"{seed} {speaker}").shuffle(recordings)
        trimmed = (_trimmed(each.load(RATE)) for each in recordings[:4])
        utterances = [each for each in trimmed if len(each) >= LEAST_SECONDS * RATE]
        if len(utterances) >= 2:
            speakers.append(Speaker(speaker, utterances))
    if len(speakers) < 2:
        raise RecordingsMissing(f"the sets {', '.join(CALLER_SETS)} in {folder} have too few speakers")
    Random(seed).shuffle(speakers)
    sounds = {
        name: [each.load(RATE) for each in read_set(folder, name)[place::2]]
        for name in (MEETINGS, SPEAKER_PAIRS)
    }
    return Voices(speakers, sounds)


def speech_dbfs(audio: Samples) -> float:
    """Return the level of the loud hops of a recording, in dBFS."""
    power = hop_power(audio, int(HOP_SECONDS * RATE))
    loud = loud_hops(audio, RATE)
    return float(10 * np.log10(np.mean(power[loud] if loud.any() else power) + 1e-12))


def gain(db: float) -> np.float32:
    """Return the factor of a gain in decibels."""
    return np.float32(10 ** (db / 20))


def muffled(audio: Samples, corner: float = 700.0) -> Samples:
    """Return the audio as through a hand or a coat: 12 dB less for each octave above ``corner`` hertz."""
    spectrum = np.fft.rfft(audio)
    frequencies = np.fft.rfftfreq(len(audio), 1 / RATE)
    return np.fft.irfft(spectrum / (1 + (frequencies / corner) ** 2), len(audio)).astype(np.float32)


def far(audio: Samples, response: Samples) -> Samples:
    """Return the audio as from across a room with this impulse response, at the same level of speech."""
    size = len(audio) + len(response)
    spread = np.fft.irfft(np.fft.rfft(audio, size) * np.fft.rfft(response, size), size)[: len(audio)]
    reverberant: Samples = spread.astype(np.float32)
    return reverberant * gain(speech_dbfs(audio) - speech_dbfs(reverberant))


def _trimmed(audio: Samples) -> Samples:
    return audio[speech_begin(audio, RATE) : speech_end(audio, RATE)]
