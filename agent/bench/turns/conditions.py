"""The lines on which a caller's audio may come: each changes a recording as the line would.

The labelled times of a recording hold in each condition: no condition delays its sound.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

import numpy as np

from rejoinder.agent.bench.cases.recordings import hop_power, loud_hops, read_set
from rejoinder.agent.bench.turns.cases import Case
from rejoinder.agent.wires import g711
from rejoinder.pipeline.audio.chunk import RATE, Samples, to_pcm
from rejoinder.pipeline.audio.loudness import HOP_SAMPLES

CLEAN = "clean"
"""The name of the condition that changes nothing."""
NARROW_RATE = 8_000
"""Rate of a telephone line, in hertz."""
NOISE_DB = (5.0, 20.0)
"""Range of the level of speech above the noise, in decibels."""
TELEPHONE_SNR_DB = 15.0
"""Level of speech above the noise of a noisy telephone call, in decibels."""
LOST = 0.05
"""Share of the packets of a bad line that are lost."""
PACKET = RATE // 50
"""Samples of a packet: 20 ms."""
FADES_AFTER_MS = 10
"""A lost packet is concealed by the one before, which fades from then on (ITU-T G.711, Appendix I)."""
SILENT_AFTER_MS = 60
"""The packets that conceal lost ones are silent from then on."""
QUIET_DB = -20.0
"""Change of the level of a quiet caller, in decibels."""
OPUS_COMPRESSION = 0.98
"""libsndfile's setting for speech at 16 kbit/s; it counts from 256 kbit/s at 0 to 6 at 1."""
LEAST_NOISE_SECONDS = 2.0
"""Least length of a recording that serves as noise: a shorter one would repeat as a rhythm."""


@dataclass(frozen=True, slots=True)
class Sounds:
    """What the conditions add. noises: of the places where callers are. rooms: impulse responses.

    All are float32 of shape (n,) at 16 kHz.
    """

    noises: Sequence[Samples]
    rooms: Sequence[Samples]


Change = Callable[[Samples, Sounds, Random], Samples]
"""Returns audio as it comes over a line, equally long."""


def sounds(folder: Path, conditions: Sequence[str]) -> Sounds:
    """Return what these conditions add, of the sets noise and rir in a folder. Raises RecordingsMissing."""
    noises = read_set(folder, "noise") if {*conditions} & {"noise", "telephone-noise"} else []
    rooms = read_set(folder, "rir") if "room" in conditions else []
    long = [each for each in noises if each.seconds >= LEAST_NOISE_SECONDS]
    return Sounds([each.load(RATE) for each in long], [each.load(RATE) for each in rooms])


def under(case: Case, condition: str, added: Sounds) -> Case:
    """Return a case as it is heard in one of ``CONDITIONS``; the same each time."""
    draw = Random(f"{condition} {case.file}")
    heard = CONDITIONS[condition](case.audio, added, draw)
    return replace(case, audio=heard.astype(np.float32), condition=condition)


def shared_out(file: str, conditions: Sequence[str]) -> str:
    """Return the condition in which a recording is heard: about as many recordings for each."""
    return Random(f"condition {file}").choice(conditions)


def _clean(audio: Samples, added: Sounds, draw: Random) -> Samples:
    return audio


def _quiet(audio: Samples, added: Sounds, draw: Random) -> Samples:
    return audio * np.float32(10 ** (QUIET_DB / 20))


def _noise(audio: Samples, added: Sounds, draw: Random) -> Samples:
    return _with_noise(audio, added, draw, draw.uniform(*NOISE_DB))


def _room(audio: Samples, added: Sounds, draw: Random) -> Samples:
    room = draw.choice(added.rooms)
    room = room[int(np.argmax(np.abs(room))) :]  # the direct sound comes without delay
    size = len(audio) + len(room) - 1
    echoed = np.fft.irfft(np.fft.rfft(audio, size) * np.fft.rfft(room, size), size)[: len(audio)]
    loudness = np.sqrt(np.mean(echoed**2)) or 1.0
    return _limited(echoed * np.sqrt(np.mean(audio**2)) / loudness)


def _telephone(audio: Samples, added: Sounds, draw: Random) -> Samples:
    import soxr

    narrow = soxr.resample(audio, RATE, NARROW_RATE)
    coded = g711.decode(g711.encode(to_pcm(narrow), "mulaw"), "mulaw")
    wide = soxr.resample(np.frombuffer(coded, "<i2").astype(np.float32) / 2**15, NARROW_RATE, RATE)
    return _as_long(wide, len(audio))


def _telephone_noise(audio: Samples, added: Sounds, draw: Random) -> Samples:
    return _telephone(_with_noise(audio, added, draw, TELEPHONE_SNR_DB), added, draw)


def _telephone_loss(audio: Samples, added: Sounds, draw: Random) -> Samples:
    heard = _telephone(audio, added, draw).copy()
    passed = np.arange(PACKET) * 1000.0 / RATE
    lost_for = 0
    for first in range(PACKET, len(heard) - PACKET + 1, PACKET):
        if draw.random() >= LOST:
            lost_for = 0
            continue
        since = lost_for * 1000.0 * PACKET / RATE + passed
        fade = np.clip((SILENT_AFTER_MS - since) / (SILENT_AFTER_MS - FADES_AFTER_MS), 0.0, 1.0)
        before = first - PACKET * (lost_for + 1)
        heard[first : first + PACKET] = heard[before : before + PACKET] * fade
        lost_for += 1
    return heard


def _opus(audio: Samples, added: Sounds, draw: Random) -> Samples:
    import soundfile

    coded = io.BytesIO()
    soundfile.write(coded, audio, RATE, format="OGG", subtype="OPUS", compression_level=OPUS_COMPRESSION)
    coded.seek(0)
    return _as_long(soundfile.read(coded, dtype="float32")[0], len(audio))


CONDITIONS: dict[str, Change] = {
    CLEAN: _clean,
    "quiet": _quiet,
    "noise": _noise,
    "room": _room,
    "opus": _opus,
    "telephone": _telephone,
    "telephone-noise": _telephone_noise,
    "telephone-loss": _telephone_loss,
}
"""Each condition by its name.

quiet: 20 dB lower. noise: at 5 to 20 dB below speech. room: a room's echo. opus: 16 kbit/s. telephone: G.711.
telephone-noise: with noise 15 dB below speech. telephone-loss: 5 % of packets lost and concealed.
"""


def _with_noise(audio: Samples, added: Sounds, draw: Random, db: float) -> Samples:
    """Add noise whose level is ``db`` below that of speech, of its loud moments."""
    noise = draw.choice(added.noises)
    start = draw.randrange(len(noise))
    noise = np.take(noise, np.arange(start, start + len(audio)), mode="wrap").astype(np.float32)
    loud = loud_hops(audio, RATE)
    power = hop_power(audio, HOP_SAMPLES)[: len(loud)][loud]
    if not len(power):
        return audio
    wanted = np.mean(power) * 10 ** (-db / 10)
    return _limited(audio + noise * np.sqrt(wanted / (np.mean(noise**2) + 1e-12)))


def _limited(audio: np.ndarray[tuple[int], np.dtype[np.floating]]) -> Samples:
    """Return audio that fits into 16 bits, by less level where it would not."""
    peak = float(np.max(np.abs(audio), initial=0.0))
    limited: Samples = (audio / max(1.0, peak)).astype(np.float32)
    return limited


def _as_long(audio: Samples, length: int) -> Samples:
    return np.pad(audio[:length], (0, max(0, length - len(audio))))
