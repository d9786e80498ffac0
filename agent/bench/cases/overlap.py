"""Sounds over the agent's speech for ``rejoinder bench bargein``: real and false interruptions."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import soxr

from rejoinder.agent.bench.cases.levels import at_level
from rejoinder.agent.bench.cases.recordings import (
    Recording,
    choose,
    hop_power,
    read_set,
    speech_begin,
    speech_end,
)
from rejoinder.agent.bench.cases.voicing import first_voiced
from rejoinder.agent.client.audio import CLIENT_RATE
from rejoinder.models.loading import Specs, open_models
from rejoinder.pipeline.audio.chunk import Samples
from rejoinder.pipeline.turns.interruption import is_backchannel

REAL = "interruption"
"""Kind of a sound: the beginning of an utterance."""
SHORT = "short one"
"""Kind of a sound: one or two words of an utterance."""
BACKCHANNEL = "backchannel"
"""Kind of a sound: a listener's word that is no turn, such as "mm-hm"."""
COUGH = "cough"
"""Kind of a sound: a synthetic cough."""
NOISE = "noise"
"""Kind of a sound: recorded noise."""
INTERRUPTION_SETS = ("assistant_utterances", "speechocean762_adult", "read_misc", "an4")
"""Sets of recordings that interruptions are taken from."""
NOISES = "noise"
"""The set of recordings of noise."""
LISTENERS = (
    "Mm-hmm.",
    "Uh-huh.",
    "Yeah.",
    "Okay.",
    "Right.",
    "I see.",
    "Sure.",
    "Oh.",
    "Yeah, yeah.",
    "Got it.",
)
"""Backchannels. Voices speak them, because no recordings with a free licence are known."""
PITCHES = (0.92, 1.0, 1.12)
"""Factors of the pitch and speed of the voices."""
MOST_INTERRUPTION_SECONDS = 2.5
"""Longest interruption."""
LEAST_INTERRUPTION_SECONDS = 0.3
"""Shortest interruption."""
SHORT_INTERRUPTION_SECONDS = (0.35, 0.7)
"""Range of the length of a short interruption, in seconds."""


@dataclass(frozen=True, slots=True)
class OverlapSound:
    """A sound over the agent's speech, float32 of shape (n,) at 24 kHz. begin: its first voiced sample."""

    kind: str
    name: str
    audio: Samples
    begin: int

    @property
    def is_real(self) -> bool:
        """Whether the agent has to stop."""
        return self.kind in (REAL, SHORT)


def interruptions(folder: Path, sets: Sequence[str], count: int, seed: int) -> list[OverlapSound]:
    """Return beginnings of utterances; each fourth has only one or two words. Raises RecordingsMissing."""
    found: list[OverlapSound] = []
    for recording in choose(folder, sets, 2 * count, seed):
        audio = recording.load(CLIENT_RATE)
        audio = audio[: speech_end(audio, CLIENT_RATE)]
        begin = speech_begin(audio, CLIENT_RATE)
        said = len(audio) - begin >= LEAST_INTERRUPTION_SECONDS * CLIENT_RATE and not is_backchannel(
            recording.text or "no text"
        )
        if said:
            kind = REAL if len(found) % 4 else SHORT
            voiced = begin + first_voiced(audio[begin:], CLIENT_RATE)
            first, last = (
                max(0, begin - CLIENT_RATE // 10),
                begin + int(MOST_INTERRUPTION_SECONDS * CLIENT_RATE),
            )
            heard = audio[first : last if kind == REAL else min(last, _gap(audio, begin))]
            if voiced - first < len(heard):  # else the first word has no voice, as "sh"
                found.append(
                    OverlapSound(kind, f"{recording.set}/{recording.path.name}", heard, voiced - first)
                )
    return found[:count]


async def backchannels(voices: Sequence[str], count: int, seed: int) -> list[OverlapSound]:
    """Return backchannels of several voices at several pitches. Raises ModelError.

    Cancelling stops the voice and closes its models.
    """
    made = []
    for voice in voices:
        specs = Specs(vad="scripted:vad", turn="", stt="scripted:stt", llm="scripted:llm", tts=voice)
        async with open_models(specs) as models:
            for text in LISTENERS:
                async with aclosing(models.tts.speak(text)) as spoken:
                    chunks = [chunk async for chunk in spoken]
                whole = np.concatenate([chunk.samples() for chunk in chunks])
                for pitch in PITCHES:
                    audio = at_level(soxr.resample(whole, chunks[0].rate * pitch, CLIENT_RATE))
                    name = f"{text} {voice} x{pitch}"
                    made.append(OverlapSound(BACKCHANNEL, name, audio, speech_begin(audio, CLIENT_RATE)))
    Random(seed).shuffle(made)
    return made[:count]


def noises(folder: Path, count: int, seed: int) -> list[OverlapSound]:
    """Return pieces of noise: rubbing, taps, dishes, an office, a room. Raises RecordingsMissing."""
    draw = Random(seed)
    recordings: list[Recording] = read_set(folder, NOISES)
    found = []
    for place in range(count):
        recording = recordings[place % len(recordings)]
        audio = recording.load(CLIENT_RATE)
        length = int(draw.uniform(LEAST_INTERRUPTION_SECONDS, 1.5) * CLIENT_RATE)
        first = draw.randrange(max(1, len(audio) - length))
        found.append(OverlapSound(NOISE, recording.path.name, audio[first : first + length], 0))
    return found


def coughs(count: int, seed: int) -> list[OverlapSound]:
    """Return synthetic coughs: one to three decaying bursts of coloured noise over a falling voice."""
    found = []
    for number in range(count):
        draw = np.random.default_rng([seed, number])
        bursts = []
        for _ in range(draw.integers(1, 4)):
            times = np.arange(int(CLIENT_RATE * draw.uniform(0.18, 0.3))) / CLIENT_RATE
            breath = np.convolve(draw.normal(0.0, 1.0, len(times)), np.ones(6) / 6, "same")
            voice = np.sin(2 * np.pi * (180 - 200 * times) * times)
            burst = (breath + 0.4 * voice) * np.minimum(times / 0.008, 1.0) * np.exp(-times / 0.07)
            bursts += [burst, np.zeros(int(CLIENT_RATE * draw.uniform(0.08, 0.2)))]
        found.append(OverlapSound(COUGH, f"cough {number}", at_level(np.concatenate(bursts)), 0))
    return found


def _gap(audio: Samples, begin: int) -> int:
    """Return the quietest sample soon after the start of speech: the gap between the first two words."""
    first, last = (begin + int(seconds * CLIENT_RATE) for seconds in SHORT_INTERRUPTION_SECONDS)
    power = hop_power(audio[first:last], CLIENT_RATE // 50)
    return first + int(np.argmin(power)) * (CLIENT_RATE // 50) if len(power) else len(audio)
