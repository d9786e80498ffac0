"""The table of all metrics, for the documentation."""

from __future__ import annotations

from collections.abc import Iterator

from rejoinder.agent.metrics.collectors import COLLECTED_LABELS
from rejoinder.agent.metrics.meters import COUNTERS, GAUGES, HISTOGRAMS, METRIC_PREFIX
from rejoinder.agent.metrics.server_metrics import ServerMetrics

UNIT_ENDINGS = {
    "seconds": "seconds",
    "bytes": "bytes",
    "celsius": "degrees Celsius",
    "ratio": "share, 0 to 1",
    "second": "tokens per second",
    "jobs": "jobs",
    "tokens": "tokens",
    "wasted": "tokens",
    "level": "level, 0 to 4",
}
"""The unit of a metric, by the last word of its name; all others count what the name says."""


def metrics_table() -> Iterator[str]:
    """Yield the lines of a Markdown table: name, type, unit, labels and meaning of each metric."""
    yield "| name | type | unit | labels | meaning |"
    yield "|---|---|---|---|---|"
    labels = {name: entry[0] for table in (COUNTERS, HISTOGRAMS, GAUGES) for name, entry in table.items()}
    labels |= {name: ",".join(those) for name, those in COLLECTED_LABELS.items()}
    for family in sorted(ServerMetrics().collect(), key=lambda family: family.name):
        name = family.name.removeprefix(METRIC_PREFIX)
        shown = family.name + "_total" * (family.type == "counter")
        unit = UNIT_ENDINGS.get(name.rpartition("_")[2], "number")
        named = ", ".join(f"`{label}`" for label in str(labels[name]).split(",") if label)
        yield f"| `{shown}` | {family.type} | {unit} | {named} | {family.documentation} |"
