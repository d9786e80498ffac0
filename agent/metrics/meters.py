"""The metrics of one server that something counts or measures, in a Prometheus registry of its own."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from rejoinder.agent.metrics.labels import BoundedLabel
from rejoinder.agent.metrics.measures import Measurement
from rejoinder.pipeline.trace import PART_NAMES

METRIC_PREFIX = "rejoinder_"
"""The beginning of all names."""
LATENCY_BUCKETS = (
    0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0, 1.5, 2.0, 3.0, 5.0,
)  # fmt: skip
"""Upper bounds for parts of a caller's wait, in seconds. The client for Python has no native histograms."""
RATE_BUCKETS = (2.0, 5.0, 10.0, 20.0, 40.0, 60.0, 80.0, 100.0, 150.0, 200.0, 400.0, 800.0)
"""Upper bounds for tokens per second."""
LAG_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)
"""Upper bounds for the lag of the event loop, in seconds."""
MODEL_LABELS = 16
"""Most names of language models in labels."""
WIRE_LABELS = 24
"""Most names of wires in labels: there are about a dozen."""
STATUS_LABELS = 32
"""Most HTTP statuses and most close codes in labels."""

COUNTERS = {
    "calls": ("wire", "Calls that have begun."),
    "failed_calls": ("wire", "Calls that an error has ended."),
    "user_turns": ("content", "Turns of callers, by content: words, or none (a sound without words)."),
    "replies": (
        "status",
        "Replies of the agent that have ended: completed, incomplete (cut short by a limit or a guard), "
        "cancelled or failed.",
    ),
    "interruptions": (
        "real",
        "Sounds of callers over the agent: true if the agent yielded, false for a noise or a backchannel.",
    ),
    "guesses": (
        "outcome",
        "Replies that began before the turn of the caller was surely over: kept, or dropped.",
    ),
    "guess_tokens_wasted": ("", "Tokens of the language model in dropped guesses."),
    "tool_calls": ("", "Calls of tools by the language model, of the agent's tools and of the client's."),
    "tool_runs": (
        "outcome",
        "Runs of tools that have ended: completed, wrong (the model can mend the call), failed (the tool "
        "raised an exception), cancelled, or client (a client has returned the result of its own tool).",
    ),
    "llm_tokens": (
        "model,kind",
        "Tokens of language models: read (prompts), cached (of those, what the model's server had in its "
        "cache) and written (answers).",
    ),
    "llm_rescues": (
        "kind",
        "Requests that went to another language model: hedge (at the deadline of the first token) or "
        "failover (after an error).",
    ),
    "guard_refusals": ("", "Replies of which a guard refused a clause."),
    "cached_answers": (
        "found",
        "Answers that were looked up in the cache: exact (by the same words), similar (by their meaning), "
        "miss; and failed, for each failure of the cache itself.",
    ),
    "ended_calls": (
        "why",
        "Calls ended from outside: stuck (no sign of life), endless (speech without an end), too_long (they "
        "did not end by themselves).",
    ),
    "requests": (
        "path,status",
        "HTTP requests and WebSockets by path and status; an accepted WebSocket has status 101.",
    ),
    "socket_closes": ("code", "WebSockets that the server has closed, by close code."),
    "errors": ("kind,role", "Errors that ended a reply or a call, with the role of the model that failed."),
    "audio_seconds": (
        "kind",
        "Audio: received from callers, user_speech (of that, the callers' turns), and agent_speech (what was "
        "played).",
    ),
    "kept_calls": (
        "outcome",
        "Calls that are over, and the database calls_db: kept there, dropped (too many waited, or the server "
        "ended), and failed tries to write one.",
    ),
    "journal_writes": (
        "outcome",
        "Writes to the store of conversations: written, or failed. One has all that has changed since the "
        "last one.",
    ),
    "unchecked_limits": (
        "outcome",
        "Calls and requests with a limit that came while limits_store was away: begun (limits_without_store "
        "is open) or refused (closed).",
    ),
    "recordings": (
        "outcome",
        "Recordings of calls that have ended: complete, failed (the disk was full, for example) or discarded "
        "(the announcement was not heard).",
    ),
    "backpressure_seconds": ("", "Time in which audio or text of replies waited for a client to take it."),
}  # fmt: skip
"""Counters: their labels, separated by commas, and their meaning. The names end in ``_total``."""
HISTOGRAMS: dict[str, tuple[str, Sequence[float], str]] = {
    "turn_latency_seconds": (
        "",
        LATENCY_BUCKETS,
        "Time from the last sample of the caller's speech to the first audio of the reply.",
    ),
    "turn_part_seconds": (
        "part",
        LATENCY_BUCKETS,
        "Parts of rejoinder_turn_latency_seconds, named after the mark that ends each. They add up to it.",
    ),
    "llm_first_token_seconds": (
        "model",
        LATENCY_BUCKETS,
        "Time from the request to the language model to its first token.",
    ),
    "llm_tokens_per_second": (
        "model",
        RATE_BUCKETS,
        "Speed of the language model after its first token, while the reply waits for it.",
    ),
    "journal_write_seconds": (
        "",
        LATENCY_BUCKETS,
        "Time of a write to the store of conversations that succeeded.",
    ),
    "event_loop_lag_seconds": ("", LAG_BUCKETS, "Delay of the event loop, measured four times a second."),
}
"""Histograms: their label, upper bounds and meaning."""
GAUGES = {
    "journal_conversations": ("", "Conversations of this server that are kept in the store."),
    "gpu_memory_used_bytes": ("gpu", "Used memory of a GPU."),
    "gpu_memory_bytes": ("gpu", "Memory of a GPU."),
    "gpu_utilization_ratio": ("gpu", "Share of time in which a GPU was busy, from 0 to 1."),
    "gpu_temperature_celsius": ("gpu", "Temperature of a GPU."),
}
"""Gauges that something sets: their label and meaning."""
FROM_THE_START: dict[str, list[tuple[str, ...]]] = {
    "user_turns": [("words",), ("none",)],
    "replies": [("completed",), ("incomplete",), ("cancelled",), ("failed",)],
    "interruptions": [("true",), ("false",)],
    "guesses": [("kept",), ("dropped",)],
    "tool_runs": [("completed",), ("wrong",), ("failed",), ("cancelled",), ("client",)],
    "llm_rescues": [("hedge",), ("failover",)],
    "cached_answers": [("exact",), ("similar",), ("miss",), ("failed",)],
    "ended_calls": [("stuck",), ("endless",), ("too_long",)],
    "kept_calls": [("kept",), ("dropped",), ("failed",)],
    "journal_writes": [("written",), ("failed",)],
    "unchecked_limits": [("begun",), ("refused",)],
    "recordings": [("complete",), ("failed",), ("discarded",)],
    "audio_seconds": [("received",), ("user_speech",), ("agent_speech",)],
    "errors": [
        *((code, role) for code in ("model_error", "model_timeout") for role in ("stt", "llm", "tts")),
        ("context_length_exceeded", "llm"),
        ("overloaded", ""),
        ("protocol", ""),
        ("server_error", ""),
    ],
    "turn_part_seconds": [(mark,) for mark in PART_NAMES],
}
"""Series that exist before their first event: a rate over a series that just begins misses that event."""


class Meters:
    """Takes measurements. registry: its metrics, and what else collects for the server."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._bounded = {
            "model": BoundedLabel(MODEL_LABELS),
            "wire": BoundedLabel(WIRE_LABELS),
            "status": BoundedLabel(STATUS_LABELS),
            "code": BoundedLabel(STATUS_LABELS),
        }
        self._counters = {
            name: Counter(METRIC_PREFIX + name, meaning, _labels(labels), registry=self.registry)
            for name, (labels, meaning) in COUNTERS.items()
        }
        self._histograms = {
            name: Histogram(
                METRIC_PREFIX + name, meaning, _labels(labels), registry=self.registry, buckets=bounds
            )
            for name, (labels, bounds, meaning) in HISTOGRAMS.items()
        }
        self._gauges = {
            name: Gauge(METRIC_PREFIX + name, meaning, _labels(label), registry=self.registry)
            for name, (label, meaning) in GAUGES.items()
        }
        self._labels = {
            name: _labels(str(entry[0]))
            for table in (COUNTERS, HISTOGRAMS, GAUGES)
            for name, entry in table.items()
        }
        self._set: set[tuple[str, tuple[str, ...]]] = set()
        for name, series in FROM_THE_START.items():
            metric = self._counters.get(name) or self._histograms[name]
            for values in series:
                metric.labels(*values)

    def record(self, measured: Iterable[Measurement]) -> None:
        """Count, observe or set each value. Values of labels that clients or settings choose are bounded."""
        for one in measured:
            values = [
                self._bounded[label].of(value) if label in self._bounded else value
                for label, value in zip(self._labels[one.metric], one.labels, strict=True)
            ]
            if (counter := self._counters.get(one.metric)) is not None:
                # A counter refuses negative values. Servers of language models report any number.
                (counter.labels(*values) if values else counter).inc(max(0.0, one.value))
            elif (histogram := self._histograms.get(one.metric)) is not None:
                (histogram.labels(*values) if values else histogram).observe(one.value)
            else:
                gauge = self._gauges[one.metric]
                (gauge.labels(*values) if values else gauge).set(one.value)

    def replace_gauges(self, measured: Sequence[Measurement]) -> None:
        """Set the gauges of GPUs, and remove the series that are not among these."""
        kept = {(one.metric, one.labels) for one in measured}
        for metric, labels in self._set - kept:
            self._gauges[metric].remove(*labels)
        self._set = kept
        self.record(measured)


def _labels(labels: str) -> list[str]:
    return labels.split(",") if labels else []
