"""From the events of a call to measurements. No clock and no I/O."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from rejoinder.agent.app.tool_result import ToolReturned
from rejoinder.agent.wires.observer import Observed
from rejoinder.pipeline import (
    RATE,
    BackchannelEnded,
    EndOfTurn,
    ModelError,
    NothingSaid,
    OverlapEnded,
    OverlapStarted,
    Overloaded,
    ProtocolError,
    ReplyCalled,
    ReplyDone,
    SpeechStarted,
    Trace,
    TurnTraced,
)

REMEMBERED_TRACES = 32
"""Replies of a call that are known to be measured: the session may send a trace again."""
ROLES_OF_ERRORS = {
    "voice activity detection": "vad",
    "turn model": "turn",
    "speech recogniser": "stt",
    "language model": "llm",
    "voice": "tts",
}
"""The role of a model, by its name in errors."""
RECOGNISER = "speech recogniser"
"""The name of the recogniser in errors. Its error is that of a turn, whether or not a reply fails with it."""
MODEL_CODES = ("model_error", "model_timeout", "context_length_exceeded")
"""The codes of model errors."""
CACHE_COUNTS = {"cache_exact": "exact", "cache_similar": "similar", "cache_miss": "miss"}
"""What a reply found in the cache of answers, by its count in a trace."""
LLM_COUNTS = {"hedges": "hedge", "failovers": "failover"}
"""What happened to requests at several language models, by its count in a trace."""
BEFORE_REQUEST = ("reply_started", "cache", "context")
"""Marks that may come before the request to the language model, which the last of them begins."""


@dataclass(frozen=True, slots=True)
class Measurement:
    """A value for one metric. labels: the values of its labels, in order."""

    metric: str
    value: float = 1.0
    labels: tuple[str, ...] = ()


class CallMeasures:
    """Turns the events of one call into measurements.

    llm: the public name of the language model, for replies whose trace names none.
    """

    def __init__(self, llm: str) -> None:
        self._llm = llm
        self._traced: deque[int] = deque(maxlen=REMEMBERED_TRACES)
        self._overlap = False
        self._speaks_from: int | None = None

    def take(self, happened: Observed) -> list[Measurement]:
        """Return what an event of the session measures."""
        match happened:
            case TurnTraced(trace) if trace.turn not in self._traced:  # it may come again, with more counts
                self._traced.append(trace.turn)
                return waterfall(trace)
            case ReplyDone():
                return reply_measures(happened, self._llm)
            case SpeechStarted(at):
                self._speaks_from = at
                return self._end_overlap("true")
            case OverlapStarted():
                self._overlap = True
            case OverlapEnded(is_over=True) | BackchannelEnded():
                return self._end_overlap("false")
            case EndOfTurn(_, at):
                return [Measurement("user_turns", labels=("words",)), *self._spoken(at)]
            case NothingSaid(at, error):
                failed = [error_measure(error)] if error else []
                return [Measurement("user_turns", labels=("none",)), *failed, *self._spoken(at)]
            case ReplyCalled():
                return [Measurement("tool_calls")]
            case ToolReturned(_, outcome):
                return [Measurement("tool_runs", labels=(outcome,))]
        return []

    def _end_overlap(self, is_real: str) -> list[Measurement]:
        had, self._overlap = self._overlap, False
        return [Measurement("interruptions", labels=(is_real,))] if had else []

    def _spoken(self, until: int) -> list[Measurement]:
        since, self._speaks_from = self._speaks_from, None
        if since is None or until <= since:
            return []
        return [Measurement("audio_seconds", (until - since) / RATE, ("user_speech",))]


def waterfall(trace: Trace) -> list[Measurement]:
    """Return the parts of a reply's latency, and their total; nothing before audio is sent.

    The parts add up to the total: ``Trace.parts``.
    """
    parts = trace.parts()
    if not parts:
        return []
    each = [Measurement("turn_part_seconds", seconds, (mark,)) for mark, seconds in parts]
    return [*each, Measurement("turn_latency_seconds", trace.latency)]


def reply_measures(done: ReplyDone, llm: str) -> list[Measurement]:
    """Return what the end of a reply measures. llm: see CallMeasures."""
    trace = done.trace
    measured = [Measurement("replies", labels=(done.status,))]
    if done.refused:
        measured.append(Measurement("guard_refusals"))
    if done.played:
        measured.append(Measurement("audio_seconds", done.played, ("agent_speech",)))
    if (
        done.cause is not None and getattr(done.cause, "role", "") != RECOGNISER
    ):  # that of its turn is counted
        measured.append(error_measure(done.cause))
    model = trace.models[-1] if trace and trace.models else llm
    if done.usage is not None:
        usage = {"read": done.usage.read, "cached": done.usage.cached, "written": done.usage.written}
        measured += [Measurement("llm_tokens", number, (model, kind)) for kind, number in usage.items()]
    if trace is None:
        return measured
    if (seconds := first_token_seconds(trace)) is not None:
        measured.append(Measurement("llm_first_token_seconds", seconds, (model,)))
    if trace.tokens > 1 and trace.waited > 0.0:
        rate = (trace.tokens - 1) / trace.waited
        measured.append(Measurement("llm_tokens_per_second", rate, (model,)))
    for metric, counts in (("llm_rescues", LLM_COUNTS), ("cached_answers", CACHE_COUNTS)):
        for count, kind in counts.items():
            if number := trace.counts.get(count):
                measured.append(Measurement(metric, number, (kind,)))
    return measured


def request_begin(trace: Trace) -> float | None:
    """Return the loop time of a reply's request to the language model, None for a reply without a start."""
    limit = trace.marks.get("first_token", math.inf)
    begun = [at for name, at in trace.marks.items() if name in BEFORE_REQUEST and at <= limit]
    return max(begun, default=None)


def first_token_seconds(trace: Trace) -> float | None:
    """Return the seconds from the request to the language model to its first token, None without one."""
    begun, first = request_begin(trace), trace.marks.get("first_token")
    return None if begun is None or first is None else first - begun


def error_measure(error: BaseException) -> Measurement:
    """Return the measurement of an error: its kind, and the role of the model that failed, "" for none."""
    role = ""
    match error:
        case ModelError():
            role = ROLES_OF_ERRORS.get(error.role, "")
            kind = error.code if error.code in MODEL_CODES else MODEL_CODES[0]
        case Overloaded():
            kind = "overloaded"
        case ProtocolError():
            kind = "protocol"
        case _:
            kind = "server_error"
    return Measurement("errors", labels=(kind, role))
