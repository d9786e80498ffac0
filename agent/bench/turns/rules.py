"""Measures how often the agent cuts callers off, against how long it makes them wait.

The real VAD, floor, recogniser and turn model process each case once, in sample time. Their answers and times
are recorded, and each rule is then judged on the record. A judgement counts from its request plus the model's
time on this machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np

from rejoinder.agent.bench.turns.cases import Case
from rejoinder.models.stt.whisper import FREEZE_SECONDS, Whisper, Words
from rejoinder.models.turn.smart_turn import SmartTurn
from rejoinder.pipeline.audio.chunk import RATE, AudioChunk, Samples, to_pcm
from rejoinder.pipeline.audio.loudness import Loudness
from rejoinder.pipeline.events import PauseStarted, SpeechStarted, TurnResumed
from rejoinder.pipeline.interfaces import Stt, TurnModel, Vad
from rejoinder.pipeline.listening.recent_audio import MEMORY_SAMPLES
from rejoinder.pipeline.listening.schedule import DIP_SAMPLES, next_ask
from rejoinder.pipeline.listening.user_audio import HEAR_SLICE
from rejoinder.pipeline.turns.endpointer import Endpointer

LONGEST_JUDGED_MS = 2_400.0
"""The turn model is not asked about a pause after this much silence, in milliseconds."""

Wait = Callable[["Observation", int], float]
"""A rule: the silence in ms that ends a turn, by what is known of it and how many judgements there were."""


@dataclass(frozen=True, slots=True)
class Observation:
    """What was known of a case. Times in ms since the silence began, by truth and not by the VAD.

    pause: from where its silence counts, by the VAD or the level. judged: (time of the answer, probability).
    text: the words before the pause. text_at: when they were there. resumes: when the speaker went on, None
        where the turn was over.
    sounds: what Smart Turn's network made of each, for the fit of its last layer; ``judged`` then has the
        answers of its own one.
    ending: what Whisper's made of the words' end, for the fit of another. whisper: which one that was.
    over: the shipped one's answer.
    """

    set: str
    file: str
    speaker: str
    natural: bool
    pause: float
    judged: tuple[tuple[float, float], ...]
    text: str
    text_at: float
    resumes: float | None
    sounds: tuple[Samples, ...] = ()
    ending: Samples = field(default_factory=lambda: np.zeros(0, np.float32))
    over: float | None = None
    whisper: str = ""


async def observe(case: Case, vad: Vad, stt: Stt, turn_model: TurnModel) -> Observation | None:
    """Process one case. Returns None if the VAD finds no speech, or no pause at the labelled place.

    Cancelling changes nothing.
    """
    floor, stream = Endpointer(), vad.stream()
    pcm = to_pcm(case.audio)
    pause = start = None
    noticed = 0
    for first in range(0, len(case.audio) - HEAR_SLICE + 1, HEAR_SLICE):
        chunk = AudioChunk(pcm[2 * first : 2 * (first + HEAR_SLICE)], RATE, first)
        for end, probability in stream.feed(chunk):
            for event in floor.vad(end, probability):
                match event:
                    case SpeechStarted():
                        start = floor.turn_start
                    case PauseStarted(at):
                        pause, noticed = at, first + HEAR_SLICE
                    case TurnResumed():
                        pause = None
        reached = first + HEAR_SLICE >= (case.resumes or case.at + RATE)
        if reached and (pause is not None or first + HEAR_SLICE >= case.at + 2 * RATE):
            break
    if pause is None or start is None or pause < case.at - RATE // 2:
        return None
    if case.resumes is not None and pause >= case.resumes:
        return None  # in what came after it
    level = Loudness()
    level.feed(AudioChunk(pcm[2 * start : 2 * noticed], RATE, start))
    return await _ask(case, start, level.quiet_before(pause), noticed, stt, turn_model)


async def _ask(
    case: Case, start: int, quiet: int, noticed: int, stt: Stt, turn_model: TurnModel
) -> Observation:
    """Ask the models as a session does: for the words where the level has fallen for a moment, or else when
    the pause is noticed, and about the sound again and again."""

    def at(sample: float) -> float:
        return (sample - case.at) * 1000.0 / RATE

    began = time.perf_counter()
    until = min(quiet + DIP_SAMPLES, noticed)
    words, over = await _words(case.audio[start:until], stt)
    text_at = max(at(noticed), at(until) + (time.perf_counter() - began) * 1000.0)
    judged, sounds = [], []
    asked = max(next_ask(quiet, None), noticed)
    while at(asked) < LONGEST_JUDGED_MS and asked < (case.resumes or len(case.audio)):
        sound = case.audio[max(start, asked - MEMORY_SAMPLES) : asked]
        began = time.perf_counter()
        if isinstance(turn_model, SmartTurn):
            heard = await turn_model.sound(sound)
            sounds += [heard.pooled] if len(heard.pooled) else []
            probability = heard.answer
        else:
            probability = await turn_model.probability(sound, words.text)
        judged.append((at(asked) + (time.perf_counter() - began) * 1000.0, probability))
        asked = next_ask(quiet, asked)
    return Observation(
        case.set,
        case.file,
        case.speaker,
        case.natural,
        at(quiet),
        tuple(judged),
        words.text,
        text_at,
        None if case.resumes is None else at(case.resumes),
        sounds=tuple(sounds),
        ending=words.ending,
        over=over,
        whisper=stt.name if isinstance(stt, Whisper) and len(words.ending) else "",
    )


async def _words(audio: Samples, stt: Stt) -> tuple[Words, float | None]:
    if isinstance(stt, Whisper) and len(audio) <= FREEZE_SECONDS * RATE:
        words = await stt.words(audio)
        return words, words.over
    stream = stt.stream()
    stream.feed(AudioChunk(to_pcm(audio), RATE))
    transcript = await stream.transcribe(is_final=True)
    return Words(transcript.text), transcript.end_probability


def end_of_turn(seen: Observation, wait: Wait) -> float:
    """Return the ms of silence after which a rule ends the turn, if the speaker lets it."""
    moments = [seen.text_at, *(when for when, _ in seen.judged if when > seen.text_at), float("inf")]
    for now, following in pairwise(moments):
        known = sum(when <= now for when, _ in seen.judged)
        ends = max(now, seen.pause + wait(seen, known))
        if ends < following:
            return ends
    raise AssertionError("the last moment has no end")


def cuts_off(seen: Observation, wait: Wait) -> bool:
    """Return whether a rule ends the turn before the speaker goes on."""
    return seen.resumes is not None and end_of_turn(seen, wait) < seen.resumes


def latest_answer(patience: float = 1.0) -> Wait:
    """Return the rule that there was before: 800 ms down to 200 as Smart Turn's latest answer is surer."""

    def wait(seen: Observation, known: int) -> float:
        return patience * (800.0 - (seen.judged[known - 1][1] if known else 0.0) * 600.0)

    return wait


def silence_alone(ms: float) -> Wait:
    """Return the rule that uses no model: a fixed silence ends the turn."""
    return lambda seen, known: ms


@dataclass(frozen=True, slots=True)
class Point:
    """A rule's result: the share of holds cut off, and the ms from the last speech to the end of the turn."""

    name: str
    holds: int
    ends: int
    cut_off: float
    p50: float
    p95: float


def judge(name: str, seen: Sequence[Observation], wait: Wait) -> Point:
    """Judge one rule; there must be holds and ends."""
    holds = [each for each in seen if each.resumes is not None]
    ends = [end_of_turn(each, wait) for each in seen if each.resumes is None]
    cut = sum(cuts_off(each, wait) for each in holds)
    return Point(name, len(holds), len(ends), cut / len(holds), *np.percentile(ends, (50, 95)).tolist())


def curve(seen: Sequence[Observation], rule: Callable[[float], Wait], steps: Sequence[float]) -> list[Point]:
    """Judge a rule at every setting of its knob."""
    return [judge(f"{step:g}", seen, rule(step)) for step in steps]


def at_median(points: Sequence[Point], ms: float) -> float | None:
    """Return the share cut off where the median latency is ``ms``, between the two nearest points."""
    ordered = sorted(points, key=lambda point: point.p50)
    medians, cut = [point.p50 for point in ordered], [point.cut_off for point in ordered]
    if not medians or not medians[0] <= ms <= medians[-1]:
        return None
    return float(np.interp(ms, medians, cut))


def at_cut_off(points: Sequence[Point], share: float) -> float | None:
    """Return the least median latency at which no more than ``share`` of the holds are cut off."""
    good = [point.p50 for point in points if point.cut_off <= share]
    return min(good, default=None)
