"""Metrics that are read when a client asks for them: calls, traffic, engines, caches and load."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from rejoinder.agent.faults import FAULTS
from rejoinder.agent.metrics.meters import METRIC_PREFIX
from rejoinder.agent.wires.transport import Traffic
from rejoinder.models.engines import PromptCache, engines_of, llms_of
from rejoinder.models.tts.phrases import PhraseVoice
from rejoinder.pipeline import Models
from rejoinder.pipeline.engines.engine import Engine

ENGINE_ROLES = ("vad", "turn", "stt", "llm", "tts")
"""The roles of models, each of which may have an engine."""
BATCH_BOUNDS = (1, 2, 4, 8, 16, 32)
"""Upper bounds for the size of a batch."""
ENGINE_LABELS = ("engine", "role")
"""Labels of an engine's metrics: its name, with a number if another engine has it, too, and its role."""
Engines = Mapping[tuple[str, str], Engine[Any, Any]]
"""Engines by the values of ``ENGINE_LABELS``."""
ENGINE_COUNTERS: dict[str, tuple[str, Callable[[Engine[Any, Any]], float]]] = {
    "engine_busy_seconds": ("Time that an engine has worked.", lambda engine: engine.stats.busy),
    "engine_pressing_seconds": (
        "Time that an engine has worked on jobs that were due soon.",
        lambda engine: engine.stats.pressing,
    ),
    "engine_wait_seconds": ("Time that jobs have waited for an engine.", lambda engine: engine.stats.waited),
    "engine_failed_steps": (
        "Steps of an engine that raised an error, or that were given up because they hung.",
        lambda engine: engine.stats.failed,
    ),
    "engine_replaced_threads": (
        "Threads of an engine that ended or hung, and that another one has replaced.",
        lambda engine: engine.stats.replaced,
    ),
    "engine_handed_over_steps": (
        "Slow steps of an engine beside which another thread took the jobs of other calls.",
        lambda engine: engine.stats.handed_over,
    ),
    "engine_dropped_jobs": (
        "Jobs that were cancelled before an engine began them.",
        lambda engine: engine.stats.dropped,
    ),
}
"""Counters of an engine: their meaning and value."""
ENGINE_GAUGES: dict[str, tuple[str, Callable[[Engine[Any, Any]], float]]] = {
    "engine_hung_steps": (
        "Steps of an engine that were given up, and that have not ended.",
        lambda engine: engine.hung,
    ),
    "engine_queue_jobs": ("Jobs that wait for an engine.", lambda engine: engine.waiting),
    "engine_queue_age_seconds": ("Time that the oldest job has waited.", lambda engine: engine.age),
}
"""Gauges of an engine: their meaning and value."""
TRAFFIC_COUNTERS: dict[str, tuple[str, Callable[[Traffic], float]]] = {
    "received_bytes": ("Bytes of messages from clients of calls.", lambda traffic: traffic.received),
    "sent_bytes": ("Bytes of messages to clients of calls.", lambda traffic: traffic.sent),
    "stalled_clients": (
        "Clients that did not take a message within 5 seconds.",
        lambda traffic: traffic.stalls,
    ),
}
"""Counters of what calls exchange with their clients: their meaning and value."""
LOAD_LEVEL = "load_level"
"""The gauge of the load level."""
COLLECTED_LABELS: dict[str, tuple[str, ...]] = {
    "sessions": ("wire",),
    "tasks": (),
    "phrases": ("result",),
    "prompt_tokens": ("result",),
    "faults": ("kind",),
    LOAD_LEVEL: (),
    "engine_batch_jobs": ENGINE_LABELS,
    **dict.fromkeys(TRAFFIC_COUNTERS, ("wire",)),
    **dict.fromkeys(ENGINE_COUNTERS, ENGINE_LABELS),
    **dict.fromkeys(ENGINE_GAUGES, ENGINE_LABELS),
}
"""The labels of each metric of ``ServerCollector``."""


class ServerCollector(Collector):
    """Reads the state of a server.

    models: returns all sets of models that are loaded. sessions: returns the number of calls of each wire,
    whose names are bounded. traffic: what the calls of each wire have exchanged, which grows.
    """

    def __init__(
        self,
        models: Callable[[], Iterable[Models]],
        sessions: Callable[[], Mapping[str, int]],
        traffic: Mapping[str, Traffic],
    ) -> None:
        self._models = models
        self._sessions = sessions
        self._traffic = traffic

    def describe(self) -> Iterable[Metric]:
        """Return the metrics without values, so that registering reads nothing."""
        return list(ServerCollector(tuple, dict, {}).collect())

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics as they are now."""
        sets = list(self._models())
        sessions = _gauge("sessions", "Calls that run now, by wire.")
        for wire, number in self._sessions().items():
            sessions.add_metric([wire], number)
        yield sessions
        tasks = _gauge("tasks", "Tasks of asyncio that have not ended.")
        if (running := running_tasks()) is not None:
            tasks.add_metric([], running)
        yield tasks
        for name, (meaning, value) in TRAFFIC_COUNTERS.items():
            counter = _counter(name, meaning)
            for wire, traffic in list(self._traffic.items()):
                counter.add_metric([wire], value(traffic))
            yield counter
        faults = _counter(
            "faults",
            "Faults around the process: trace_file or log (a line was not written), descriptors (a call had "
            "to wait for one), clock (it was set).",
        )
        for kind, number in FAULTS.items():
            faults.add_metric([kind], number)
        yield faults
        level = _gauge(
            LOAD_LEVEL,
            "Work that is skipped: 0 nothing, 1 partial transcripts, 2 also a part of the recogniser's "
            "window, 3 also the end of long replies, 4 also new calls.",
        )
        if sets:
            level.add_metric([], float(sets[0].load_shedder.level))
        yield level
        yield from cache_metrics(sets)
        yield from engine_metrics(named_engines(sets))


def running_tasks() -> int | None:
    """Return the number of tasks of the running loop, None outside of one."""
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:
        return None


def cache_metrics(sets: Iterable[Models]) -> Iterator[Metric]:
    """Yield what the caches of the embedded models have saved."""
    models = list(sets)
    voices = {id(one.tts): one.tts for one in models if isinstance(one.tts, PhraseVoice)}.values()
    llms = {id(llm): llm for one in models for llm in llms_of(one.llm) if isinstance(llm, PromptCache)}
    phrases = _counter("phrases", "Clauses for the voice: kept (its audio was there), or spoken.")
    phrases.add_metric(["kept"], sum(voice.reused for voice in voices))
    phrases.add_metric(["spoken"], sum(voice.asked - voice.reused for voice in voices))
    yield phrases
    prompts = _counter(
        "prompt_tokens",
        "Tokens of prompts for the embedded language model: cached (they were read before), or read. "
        "Prompts that are read ahead count, too.",
    )
    prompts.add_metric(["cached"], sum(llm.cached_tokens for llm in llms.values()))
    prompts.add_metric(["read"], sum(llm.prompt_tokens - llm.cached_tokens for llm in llms.values()))
    yield prompts


def named_engines(sets: Iterable[Models]) -> Engines:
    """Return each engine once, by a name of its own and its role."""
    named: dict[tuple[str, str], Engine[Any, Any]] = {}
    for models in sets:
        for role in ENGINE_ROLES:
            for engine in engines_of(getattr(models, role)):
                if engine in named.values():
                    continue
                number = sum(name.partition("#")[0] == engine.name for name, _ in named) + 1
                named[f"{engine.name}#{number}" if number > 1 else engine.name, role] = engine
    return named


def engine_metrics(engines: Engines) -> Iterator[Metric]:
    """Yield the metrics of engines."""
    for name, (meaning, value) in ENGINE_COUNTERS.items():
        counter = _counter(name, meaning)
        for labels, engine in engines.items():
            counter.add_metric(labels, value(engine))
        yield counter
    for name, (meaning, value) in ENGINE_GAUGES.items():
        gauge = _gauge(name, meaning)
        for labels, engine in engines.items():
            gauge.add_metric(labels, value(engine))
        yield gauge
    batches = HistogramMetricFamily(
        f"{METRIC_PREFIX}engine_batch_jobs", "Jobs in one step of an engine.", labels=ENGINE_LABELS
    )
    for labels, engine in engines.items():
        sizes = dict(engine.stats.batches)
        below = [
            (str(float(bound)), sum(n for size, n in sizes.items() if size <= bound))
            for bound in BATCH_BOUNDS
        ]
        jobs = sum(size * number for size, number in sizes.items())
        batches.add_metric(labels, [*below, ("+Inf", sum(sizes.values()))], sum_value=jobs)
    yield batches


def _counter(name: str, meaning: str) -> CounterMetricFamily:
    return CounterMetricFamily(METRIC_PREFIX + name, meaning, labels=COLLECTED_LABELS[name])


def _gauge(name: str, meaning: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(METRIC_PREFIX + name, meaning, labels=COLLECTED_LABELS[name])
