"""Exports the metrics of the Prometheus registry over OTLP."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping
from itertools import pairwise

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    Metric,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client import Metric as Family
from prometheus_client.samples import Sample

from rejoinder.agent.metrics.last_export import finish
from rejoinder.agent.metrics.otlp import export_interval
from rejoinder.agent.metrics.server_metrics import ServerMetrics
from rejoinder.agent.metrics.tracing import SCOPE, resource

log = logging.getLogger(__name__)

UNITS = {"seconds": "s", "bytes": "By", "celsius": "Cel", "ratio": "1"}
"""The unit in UCUM, by the end of a metric's name."""


class MetricsExport:
    """Sends all metrics to a collector at each interval.

    environment: names both. Raises ConfigError for an interval that is none.
    """

    def __init__(self, metrics: ServerMetrics, environment: Mapping[str, str]) -> None:
        self._metrics = metrics
        self._seconds = export_interval(environment)
        self._exporter = OTLPMetricExporter()
        self._resource = resource()
        self._began = time.time_ns()

    async def run(self) -> None:
        """Export until cancelled, each time in a thread."""
        while True:
            await asyncio.sleep(self._seconds)
            await self.export()

    async def export(self) -> None:
        """Export once. Cancelling lets the export end in its thread."""
        await asyncio.to_thread(self._send, self._data())

    async def aclose(self) -> None:
        """Export the last values. Cancelling leaves that to its thread."""
        data = self._data()
        await finish(lambda: self._send(data), self._exporter.shutdown)
        self._exporter.shutdown()

    def _data(self) -> MetricsData:
        return otlp(self._metrics.collect(), self._resource, self._began, time.time_ns())

    def _send(self, data: MetricsData) -> None:
        if self._exporter.export(data) is not MetricExportResult.SUCCESS:
            log.warning("the metrics were not exported over OTLP")


def otlp(families: Iterable[Family], resource: Resource, began: int, now: int) -> MetricsData:
    """Return Prometheus's metrics as those of OTLP. began, now: in nanoseconds since the epoch.

    Rules: https://opentelemetry.io/docs/specs/otel/compatibility/prometheus_and_openmetrics/.
    """
    metrics = [
        Metric(family.name, family.documentation, UNITS.get(family.name.rpartition("_")[2], "1"), data)
        for family in families
        if (data := _data(family, began, now)) is not None
    ]
    scope = ScopeMetrics(InstrumentationScope(SCOPE), metrics, "")
    return MetricsData([ResourceMetrics(resource, [scope], "")])


def _data(family: Family, began: int, now: int) -> Sum | Gauge | Histogram | None:
    if not family.samples:
        return None
    if family.type == "histogram":
        points = [_histogram(samples, began, now) for samples in _series(family.samples)]
        return Histogram(points, AggregationTemporality.CUMULATIVE)
    numbers = [NumberDataPoint(one.labels, began, now, one.value) for one in family.samples]
    if family.type == "counter":
        return Sum(numbers, AggregationTemporality.CUMULATIVE, is_monotonic=True)
    return Gauge(numbers)


def _series(samples: Iterable[Sample]) -> list[list[Sample]]:
    """Return the samples of each series of a histogram."""
    series: dict[tuple[tuple[str, str], ...], list[Sample]] = {}
    for sample in samples:
        own = tuple(sorted((name, value) for name, value in sample.labels.items() if name != "le"))
        series.setdefault(own, []).append(sample)
    return list(series.values())


def _histogram(samples: list[Sample], began: int, now: int) -> HistogramDataPoint:
    """Return one series. Prometheus counts the values below each bound, OTLP those between two bounds."""
    buckets = [(float(one.labels["le"]), int(one.value)) for one in samples if one.name.endswith("_bucket")]
    below = [0, *(count for _, count in buckets)]
    return HistogramDataPoint(
        attributes={name: value for name, value in samples[0].labels.items() if name != "le"},
        start_time_unix_nano=began,
        time_unix_nano=now,
        count=below[-1],
        sum=next(one.value for one in samples if one.name.endswith("_sum")),
        bucket_counts=[count - before for before, count in pairwise(below)],
        explicit_bounds=[bound for bound, _ in buckets[:-1]],
        min=float("nan"),
        max=float("nan"),
    )
