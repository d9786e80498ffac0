"""What two tiers of servers are planned from: measured service times, and the cost of a call."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import Annotated, Any

from pydantic import BaseModel, Field, PositiveInt, ValidationError

from rejoinder.agent.bench.planning.one_machine import Figure, Machine, NoPlan, wrong
from rejoinder.agent.bench.planning.queues import OfferedLoad
from rejoinder.models.registry import adapter
from rejoinder.models.threads import plan
from rejoinder.pipeline.trace import PART_NAMES

ANSWER_PARTS = {
    "stt": (PART_NAMES["transcribed"],),
    "turn": (),
    "llm": (PART_NAMES["first_token"], PART_NAMES["first_clause"]),
    "tts": (PART_NAMES["first_audio"],),
}
"""The parts of an answer's latency in which it waits for the model of a role; for the turn model, none."""
PLANNED_ROLES = tuple(ANSWER_PARTS)
"""The roles of models that have replicas, in the order in which an answer needs them."""
FRAME_US = 20_000.0
"""Microseconds of audio in a frame of ``rejoinder bench overhead``."""


class LevelEngine(BaseModel):
    """The work of the engines of one role in a level."""

    jobs: Figure
    busy_s: Figure


class CallersLevel(BaseModel):
    """A level of ``rejoinder bench load``."""

    sessions: PositiveInt
    answered: int
    turns: list[dict[str, Annotated[float, Field(allow_inf_nan=False)]]]
    engines: dict[str, LevelEngine]


class LoadReport(BaseModel):
    """The fields of a report of ``rejoinder bench load`` that a plan of two tiers reads."""

    levels: Annotated[list[CallersLevel], Field(min_length=1)]
    every_s: Figure
    machine: Machine
    models: dict[str, str | None] = {}


class OverheadLevel(BaseModel):
    """A level of ``rejoinder bench overhead``."""

    way: str
    sessions: PositiveInt
    speaking: int
    microseconds: Figure


class OverheadReport(BaseModel):
    """The fields of a report of ``rejoinder bench overhead``."""

    levels: list[OverheadLevel]
    vad: str
    muted: bool = False


@dataclass(frozen=True, slots=True)
class Stage:
    """The work of one role's model, per turn.

    answer_s: seconds of the job that an answer waits for, one for each measured turn; empty for the turn
        model, which works while something else is waited for. jobs: of a turn. busy_s: seconds of them all.
    threads: of the measured engine, which are the cores of a replica.
    whole: whether a turn is one job that holds a slot until the reply is written, as in a server of language
        models. Otherwise the other jobs of a turn give way to the one that is waited for.
    """

    role: str
    answer_s: tuple[float, ...]
    jobs: float
    busy_s: float
    whole: bool = False
    threads: int = 1

    @property
    def first_s(self) -> float:
        """The mean seconds of the job that is served first."""
        return self.busy_s / self.jobs if not self.answer_s or self.whole else fmean(self.answer_s)

    @property
    def firsts(self) -> float:
        """The jobs of a turn that are served first."""
        return self.jobs if not self.answer_s else 1.0

    @property
    def rest_s(self) -> float:
        """The mean seconds of one of the other jobs."""
        return max(0.0, self.busy_s - self.firsts * self.first_s) / self.others if self.others else 0.0

    @property
    def others(self) -> float:
        """The jobs of a turn that give way."""
        return max(0.0, self.jobs - self.firsts)

    @property
    def variation(self) -> float:
        """The squared coefficient of variation of the jobs that are served first."""
        if not self.answer_s:
            return 1.0
        mean = fmean(self.answer_s)
        return fmean((one - mean) ** 2 for one in self.answer_s) / mean**2

    def work(self, turns: float) -> OfferedLoad:
        """Return the work of ``turns`` per second. The jobs that give way count as exponential."""
        squares = self.firsts * self.first_s**2 * (1.0 + self.variation) + self.others * 2.0 * self.rest_s**2
        jobs = self.firsts + self.others
        mean = (self.firsts * self.first_s + self.others * self.rest_s) / jobs
        urgent = self.firsts * self.first_s / (mean * jobs)
        return OfferedLoad(turns * mean * jobs, mean, squares / jobs / mean**2 - 1.0, urgent)


@dataclass(frozen=True, slots=True)
class Service:
    """What a call needs.

    stages: of each answer, in order. rest_s: the seconds of each measured answer that need no model: silence
    that has to pass, the network, the client. every_s: seconds from one turn of a call to its next one.
    call_cores: cores of a call server for one call.
    """

    stages: tuple[Stage, ...]
    rest_s: tuple[float, ...]
    every_s: float
    call_cores: float

    @property
    def hops(self) -> int:
        """The number of models that an answer needs one after another."""
        return sum(bool(stage.answer_s) for stage in self.stages)

    def alone_s(self) -> list[float]:
        """Return the measured latency of each turn, with all models idle."""
        answers = [stage.answer_s for stage in self.stages if stage.answer_s]
        return [sum(parts) for parts in zip(self.rest_s, *answers, strict=True)]


def read_service(load: Any, overhead: Any) -> Service:
    """Return the measurements in reports of ``bench load`` and ``bench overhead``. Raises NoPlan."""
    try:
        report = LoadReport.model_validate(load)
    except ValidationError as error:
        raise NoPlan(f"this is not a report of rejoinder bench load --json ({wrong(error)})") from None
    level = min(report.levels, key=lambda one: one.sessions)
    if not level.turns or not level.engines:
        raise NoPlan("the report has no times of engines: measure our own server with its models in it")
    call_cores = _call_cores(overhead)
    turns = [dict(turn) for turn in level.turns]
    stages = []
    for role in PLANNED_ROLES:
        if (work := level.engines.get(role)) is None:
            continue
        answers = tuple(
            max(0.0, sum(turn.pop(part, 0.0) for part in ANSWER_PARTS[role])) / 1000.0 for turn in turns
        )
        threads = threads_of(role, report.models.get(role), report.machine.cores)
        stages.append(_stage(role, answers, work, level.answered, threads))
    rest = tuple(sum(turn.values()) / 1000.0 for turn in turns)
    return Service(tuple(stages), rest, report.every_s, call_cores)


def threads_of(role: str, spec: str | None, cores: int) -> int:
    """Return the threads of the engine of a role on a machine with ``cores`` cores, without a GPU.

    spec: of the model, None for the default one. A server divides its cores so when it starts.
    """
    built_in = adapter((spec or "").partition(":")[0])
    share = built_in.share if built_in else "small" if role == "turn" else role
    threads: int = getattr(plan(cores), share)
    return threads


def _stage(role: str, answers: tuple[float, ...], work: LevelEngine, answered: int, threads: int) -> Stage:
    """A turn of the language model is one job: its server works on a reply until it is written."""
    whole, mean = role == "llm", fmean(answers)
    busy = max(work.busy_s / answered, mean)
    jobs = 1.0 if whole else max(1.0, work.jobs / answered)
    return Stage(role, answers if mean else (), jobs, busy, whole, threads)


def _call_cores(overhead: Any) -> float:
    try:
        report = OverheadReport.model_validate(overhead)
    except ValidationError as error:
        raise NoPlan(f"this is not a report of rejoinder bench overhead --json ({wrong(error)})") from None
    if report.vad.startswith("scripted:"):
        raise NoPlan("the report of bench overhead has no real voice activity detection: add --vad silero")
    if report.muted:
        raise NoPlan("the callers in the report of bench overhead are muted: measure without --muted")
    levels = [level for level in report.levels if level.way == "WebSocket" and level.speaking]
    if not levels:
        raise NoPlan("the report of bench overhead has no calls that speak: measure with --way websocket")
    most = max(levels, key=lambda level: level.sessions)
    return most.microseconds / FRAME_US
