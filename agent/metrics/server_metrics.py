"""The metrics of a server: what its calls measure, and what is read when a client asks."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager

from prometheus_client import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from rejoinder.agent.metrics.call_metrics import CallMetrics
from rejoinder.agent.metrics.collectors import ServerCollector
from rejoinder.agent.metrics.gpu import measure_gpus, open_nvml
from rejoinder.agent.metrics.labels import BoundedLabel
from rejoinder.agent.metrics.loop_lag import measure_lag
from rejoinder.agent.metrics.meters import WIRE_LABELS, Meters
from rejoinder.agent.wires.transport import Traffic
from rejoinder.pipeline import Models


class ServerMetrics(Collector):
    """All metrics of one server.

    llm: the public name of the language model. models: returns all sets of models that are loaded.
    """

    def __init__(self, llm: str = "", models: Callable[[], Iterable[Models]] = tuple) -> None:
        self.meters = Meters()
        self._llm = llm
        self._wires = BoundedLabel(WIRE_LABELS)
        self._traffic: dict[str, Traffic] = {}
        self._live: dict[CallMetrics, str] = {}
        self.meters.registry.register(ServerCollector(models, self._sessions, self._traffic))

    def observe(self, wire: str) -> CallMetrics:
        """Return the observer of a new call of a wire."""
        self.traffic(wire)  # so that the wire has all series from its first call on
        return CallMetrics(self.meters, self._wires.of(wire), self._llm, self._live)

    def traffic(self, wire: str) -> Traffic:
        """Return what counts the messages of all calls of a wire."""
        return self._traffic.setdefault(self._wires.of(wire), Traffic())

    def exposed(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics and their content type.

        accept: the header of the request, which may ask for OpenMetrics.
        """
        encode, content_type = choose_encoder(accept)
        return encode(self), content_type

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics as they are now, without the ``_created`` series: they double the number."""
        for call in list(self._live):
            call.settle()
        for metric in self.meters.registry.collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Measure the event loop and the GPUs for the length of the block.

        Cancelling ends the measurement.
        """
        tasks = [
            asyncio.create_task(measure_lag(self.meters), name="loop-lag"),
            asyncio.create_task(measure_gpus(self.meters, open_nvml()), name="gpus"),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def _sessions(self) -> dict[str, int]:
        running = Counter(self._live.values())
        return {wire: running[wire] for wire in self._traffic}
