"""What the callers of a soak say: recordings of people, or sentences of a voice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import soxr

from rejoinder.agent.bench.cases.levels import at_level
from rejoinder.agent.bench.cases.recordings import (
    DEFAULT_SETS,
    RecordingsMissing,
    choose,
    speech_end,
    speech_folder,
)
from rejoinder.agent.client.audio import CLIENT_RATE
from rejoinder.agent.simulate.calls import QUESTIONS
from rejoinder.models.registry import create
from rejoinder.models.threads import plan
from rejoinder.pipeline.audio.chunk import Samples, to_pcm

LINE_RATES = (8_000, 16_000, 24_000)
"""Sample rates of the wires, in hertz."""
SPOKEN_RECORDINGS = 40
"""Recordings that the callers choose from."""
LONGEST_UTTERANCE_SECONDS = 6.0
"""Longest utterance, in seconds."""
TAIL_SECONDS = 0.3
"""Audio of an utterance after its last word, in seconds."""


@dataclass(frozen=True, slots=True)
class Utterance:
    """Something that a caller says.

    pcm: 16-bit mono, by sample rate in hertz. speech_s: seconds from its begin to the end of its last word.
    """

    pcm: Mapping[int, bytes]
    speech_s: float

    @classmethod
    def of(cls, audio: Samples) -> Utterance:
        """Return an utterance. audio: float32 of shape (n,) at 24 kHz."""
        audio = at_level(audio)  # one caller says recordings of several people
        end = speech_end(audio, CLIENT_RATE)
        kept = audio[: end + int(TAIL_SECONDS * CLIENT_RATE)]
        pcm = {rate: to_pcm(soxr.resample(kept, CLIENT_RATE, rate)) for rate in LINE_RATES}
        return cls(pcm, end / CLIENT_RATE)


def recorded(folder: Path | None, seed: int) -> list[Utterance]:
    """Return recordings of people. Raises RecordingsMissing."""
    found = choose(speech_folder(folder), DEFAULT_SETS, 4 * SPOKEN_RECORDINGS, seed)
    short = [one for one in found if one.seconds <= LONGEST_UTTERANCE_SECONDS][:SPOKEN_RECORDINGS]
    return [Utterance.of(one.load(CLIENT_RATE)) for one in short]


async def synthesised(spec: str, texts: Sequence[str] = QUESTIONS) -> list[Utterance]:
    """Return sentences in the voice of a model, which is closed afterwards. Cancelling closes it."""
    voice = create(spec, plan())
    try:
        said = []
        for text in texts:
            async with aclosing(voice.speak(text)) as chunks:
                pieces = [soxr.resample(chunk.samples(), chunk.rate, CLIENT_RATE) async for chunk in chunks]
            said.append(Utterance.of(np.concatenate(pieces).astype(np.float32)))
        return said
    finally:
        if close := getattr(voice, "close", None):
            close()


async def utterances(folder: Path | None, tts: str, seed: int) -> list[Utterance]:
    """Return what the callers say: recordings where there are any, else sentences of the voice ``tts``.

    Raises RecordingsMissing if ``folder`` is given and has none. Cancelling closes the voice.
    """
    try:
        return recorded(folder, seed)
    except RecordingsMissing:
        if folder is not None:
            raise
    return await synthesised(tts)
