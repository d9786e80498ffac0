"""Scenes of a call: the caller says a turn, and then a voice is heard, the caller's or another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import numpy as np

from rejoinder.agent.bench.cases.recordings import hop_power, read_set
from rejoinder.agent.bench.speakers.voices import (
    CALLER_DBFS,
    MEETINGS,
    SPEAKER_PAIRS,
    Voices,
    far,
    gain,
    muffled,
    speech_dbfs,
)
from rejoinder.pipeline.audio.chunk import RATE, Samples

RESPONSES = "rir"
"""The set of impulse responses."""
HISS_DBFS = -65.0
"""Level of the line's noise."""
FIRST_SILENCE_SECONDS = 0.5
"""Silence before the first turn."""
SILENCE_BETWEEN_SECONDS = 3.5
"""Silence after a turn: longer than any pause of a turn."""
AFTER_SECONDS = 3.5
"""Silence at the end of a scene."""
VOICE_SECONDS = 4.0
"""Longest voice of one person in the background."""
MEETING_SECONDS = 12.0
"""Length of a meeting in the background."""
SHORT_ANSWER_SECONDS = (0.35, 0.7)
"""Range of the length of a short answer, in seconds."""


class VoicePlace(StrEnum):
    """When the voice is heard."""

    OVER_AGENT = "over the agent"
    FREE = "while nobody speaks"
    AFTER_CALLER = "right after the caller"


@dataclass(frozen=True, slots=True)
class Scene:
    """One scene. kind: which voice is heard. begin, end: its samples. is_caller: whether it is the caller's.

    audio: float32 of shape (n,) at 16 kHz.
    """

    kind: str
    place: VoicePlace
    audio: Samples
    begin: int
    end: int
    is_caller: bool


def scenes(voices: Voices, folder: Path, count: int) -> Iterator[Scene]:
    """Yield ``count`` scenes of each kind and place. Raises RecordingsMissing."""
    rooms = [each.load(RATE) for each in read_set(folder, RESPONSES)]
    speakers = voices.speakers
    for number in range(count):
        caller = speakers[number % len(speakers)]
        first = caller.utterances[0]
        loud = gain(CALLER_DBFS - speech_dbfs(first))
        own = [each * loud for each in caller.utterances]
        again = own[1 + number // len(speakers) % (len(own) - 1)]
        for kind, sound in _others(voices, number).items():
            for place in VoicePlace:
                yield _scene(kind, place, own, sound, is_caller=False)
        for kind, sound in _own(again, rooms[number % len(rooms)]).items():
            for place in (VoicePlace.OVER_AGENT, VoicePlace.FREE):
                yield _scene(kind, place, own, sound, is_caller=True)
        yield _asked_again("asks again, 15 dB quieter", own, again * gain(-15))
        yield _asked_again("asks again, 25 dB quieter", own, again * gain(-25))


def _others(voices: Voices, number: int) -> dict[str, Samples]:
    """Return the voices in the background of scene ``number``."""
    speakers = voices.speakers
    caller = speakers[number % len(speakers)]
    other = speakers[(number + 1 + number // len(speakers)) % len(speakers)]
    voice = other.utterances[number % len(other.utterances)][: int(VOICE_SECONDS * RATE)]
    meetings, pairs = voices.sounds[MEETINGS], voices.sounds[SPEAKER_PAIRS]
    meeting = _part(meetings[number % len(meetings)], number // len(meetings), MEETING_SECONDS)
    pair = _part(pairs[number % len(pairs)], 0, VOICE_SECONDS)
    aside = caller.utterances[-1][: int(VOICE_SECONDS * RATE)]
    found = {f"voice, {below} dB below": _at(voice, CALLER_DBFS - below) for below in (0, 5, 10, 15, 20)}
    found |= {f"meeting, {below} dB below": _at(meeting, CALLER_DBFS - below) for below in (10, 15, 20)}
    found["two voices, 15 dB below"] = _at(pair, CALLER_DBFS - 15)
    for below in (0, 10):
        found[f"caller muffled, {below} dB below"] = muffled(_at(aside, CALLER_DBFS - below))
    return found


def _own(utterance: Samples, room: Samples) -> dict[str, Samples]:
    """Return what a caller may sound like in a later turn."""
    found = {f"caller, {below} dB quieter": utterance * gain(-below) for below in (0, 6, 10)}
    found["caller, one or two words"] = _first_words(utterance)
    found["caller, far away"] = far(utterance, room)
    found["caller, far away, 6 dB quieter"] = far(utterance, room) * gain(-6)
    return found


def _scene(kind: str, place: VoicePlace, own: list[Samples], sound: Samples, is_caller: bool) -> Scene:
    turns = [own[0], own[-1]] if place is VoicePlace.AFTER_CALLER else [own[0]]
    parts = [_silence(FIRST_SILENCE_SECONDS), turns[0], _silence(SILENCE_BETWEEN_SECONDS), *turns[1:]]
    return _joined(kind, place, parts, sound, is_caller)


def _asked_again(kind: str, own: list[Samples], sound: Samples) -> Scene:
    quiet = _silence(SILENCE_BETWEEN_SECONDS)
    return _joined(
        kind, VoicePlace.FREE, [_silence(FIRST_SILENCE_SECONDS), own[0], quiet, sound, quiet], sound, True
    )


def _joined(kind: str, place: VoicePlace, before: list[Samples], sound: Samples, is_caller: bool) -> Scene:
    audio = np.concatenate([*before, sound, _silence(AFTER_SECONDS)])
    begin = sum(map(len, before))
    hiss = np.random.default_rng(begin).normal(0.0, gain(HISS_DBFS), len(audio)).astype(np.float32)
    return Scene(kind, place, np.clip(audio + hiss, -1.0, 1.0), begin, begin + len(sound), is_caller)


def _silence(seconds: float) -> Samples:
    return np.zeros(int(seconds * RATE), np.float32)


def _at(sound: Samples, dbfs: float) -> Samples:
    return sound * gain(dbfs - speech_dbfs(sound))


def _part(sound: Samples, number: int, seconds: float) -> Samples:
    """Return one part of a recording; the parts follow one another, and begin again at its start."""
    length = int(seconds * RATE)
    parts = max(1, len(sound) // length)
    return sound[number % parts * length :][:length]


def _first_words(utterance: Samples) -> Samples:
    first, last = (int(seconds * RATE) for seconds in SHORT_ANSWER_SECONDS)
    power = hop_power(utterance[first:last], RATE // 50)
    return utterance[: first + int(np.argmin(power)) * (RATE // 50)] if len(power) else utterance
