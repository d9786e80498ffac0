"""Measures how often the agent cuts callers off, against how long it makes them wait.

The real VAD, floor, recogniser and turn model process each case once, in sample time. Their answers and times
are recorded. Each rule is then judged on this record. An answer is known at the time of its request plus the
model's computing time on this machine; what other programs compute meanwhile does not count.
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
"""Silence after which the turn model is no longer asked about a pause, in milliseconds."""

Wait = Callable[["Observation", int], float]
"""A rule: returns the silence in ms that ends a turn. Takes an observation and how many answers are known."""
WaitAt = Callable[["Observation", int, float], float]
"""A rule for any patience: as ``Wait``, with the patience as a third argument."""


@dataclass(frozen=True, slots=True)
class Observation:
    """The models' answers about a case. Times are in ms since the labelled start of the silence.

    pause: start of the silence by the VAD or the level; ``resumes`` if the VAD did not notice it, and then
        nothing else is known.
    judged: (time of the turn model's answer, probability).
    text: the words before the pause. text_at: when they were known.
    resumes: when the speaker went on, None if the turn was over.
    sounds: Smart Turn's features of each answer, for the fit of its last layer; ``judged`` has the answers of
        the shipped layer.
    ending: Whisper's features of the last words, for the fit of its layer. over: the answer of the shipped
        layer. whisper: name of the Whisper model.
    condition: the line on which the case was heard (``conditions``).
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
    condition: str = "clean"


async def observe(case: Case, vad: Vad, stt: Stt, turn_model: TurnModel) -> Observation | None:
    """Process one case. Returns None if the VAD finds no speech, or no end at the labelled place.

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
    if start is None:
        return None
    if case.resumes is not None and (pause is None or pause >= case.resumes):
        return _unnoticed(case)
    if pause is None or pause < case.at - RATE // 2:
        return None
    level = Loudness()
    level.feed(AudioChunk(pcm[2 * start : 2 * noticed], RATE, start))
    return await _ask(case, start, level.quiet_before(pause), noticed, stt, turn_model)


async def _ask(
    case: Case, start: int, quiet: int, noticed: int, stt: Stt, turn_model: TurnModel
) -> Observation:
    """Ask the models as a session does.

    The words are requested when the level has fallen for a moment, at the latest when the pause is noticed.
    The turn model is asked repeatedly while the silence grows.
    """

    def at(sample: float) -> float:
        return (sample - case.at) * 1000.0 / RATE

    began = _Stopwatch()
    until = min(quiet + DIP_SAMPLES, noticed)
    words, over = await _words(case.audio[start:until], stt)
    text_at = max(at(noticed), at(until) + began.ms)
    judged, sounds = [], []
    asked = max(next_ask(quiet, None), noticed)
    while at(asked) < LONGEST_JUDGED_MS and asked < (case.resumes or len(case.audio)):
        sound = case.audio[max(start, asked - MEMORY_SAMPLES) : asked]
        began = _Stopwatch()
        if isinstance(turn_model, SmartTurn):
            heard = await turn_model.sound(sound)
            sounds += [heard.pooled] if len(heard.pooled) else []
            probability = heard.answer
        else:
            probability = await turn_model.probability(sound, words.text)
        judged.append((at(asked) + began.ms, probability))
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
        condition=case.condition,
    )


def _unnoticed(case: Case) -> Observation:
    """Return the observation of a pause that the VAD did not notice: no rule can cut it off."""
    resumes = case.seconds * 1000.0 if case.seconds is not None else 0.0
    about = case.set, case.file, case.speaker, case.natural
    return Observation(*about, resumes, (), "", resumes, resumes, condition=case.condition)


class _Stopwatch:
    """Measures what a request costs: the smaller of the time that passes and this process's processor time.

    On a busy machine more time passes than the models use; with several threads they use more than passes.
    """

    def __init__(self) -> None:
        self._passed, self._used = time.perf_counter(), time.process_time()

    @property
    def ms(self) -> float:
        """Milliseconds since the start."""
        return 1000.0 * min(time.perf_counter() - self._passed, time.process_time() - self._used)


async def _words(audio: Samples, stt: Stt) -> tuple[Words, float | None]:
    if isinstance(stt, Whisper) and len(audio) <= FREEZE_SECONDS * RATE:
        words = await stt.words(audio)
        return words, words.over
    stream = stt.stream()
    stream.feed(AudioChunk(to_pcm(audio), RATE))
    transcript = await stream.transcribe(is_final=True)
    return Words(transcript.text), transcript.end_probability


def end_of_turn(seen: Observation, wait: Wait) -> float:
    """Return the ms of silence after which a rule ends the turn, if the speaker does not go on before."""
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
    """Return an earlier rule of the pipeline, by Smart Turn's latest answer: from 800 ms down to 200 ms."""

    def wait(seen: Observation, known: int) -> float:
        return patience * (800.0 - (seen.judged[known - 1][1] if known else 0.0) * 600.0)

    return wait


def silence_alone(ms: float) -> Wait:
    """Return the rule without a model: a fixed silence ends the turn."""
    return lambda seen, known: ms


@dataclass(frozen=True, slots=True)
class Point:
    """The result of a rule.

    holds, ends: numbers of pauses and of ends. cut_off: share of the pauses cut off. p50, p95: ms from the
    last speech to the end of the turn.
    """

    name: str
    holds: int
    ends: int
    cut_off: float
    p50: float
    p95: float


def judge(name: str, seen: Sequence[Observation], wait: Wait) -> Point:
    """Judge a rule on observations, which must have pauses and ends."""
    holds = [each for each in seen if each.resumes is not None]
    ends = [end_of_turn(each, wait) for each in seen if each.resumes is None]
    cut = sum(cuts_off(each, wait) for each in holds)
    return Point(name, len(holds), len(ends), cut / len(holds), *np.percentile(ends, (50, 95)).tolist())


def curve(seen: Sequence[Observation], rule: Callable[[float], Wait], steps: Sequence[float]) -> list[Point]:
    """Judge a rule at every value of its parameter."""
    return [judge(f"{step:g}", seen, rule(step)) for step in steps]


def at_median(points: Sequence[Point], ms: float) -> float | None:
    """Return the share cut off at a median latency of ``ms``, interpolated; None outside of the curve."""
    ordered = sorted(points, key=lambda point: point.p50)
    medians, cut = [point.p50 for point in ordered], [point.cut_off for point in ordered]
    if not medians or not medians[0] <= ms <= medians[-1]:
        return None
    return float(np.interp(ms, medians, cut))


def at_cut_off(points: Sequence[Point], share: float) -> float | None:
    """Return the least median latency with at most ``share`` of the pauses cut off; None if there is none."""
    good = [point.p50 for point in points if point.cut_off <= share]
    return min(good, default=None)
