"""The metrics of a server: what its calls measure, and what is read when a client asks."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

from prometheus_client import Metric
from prometheus_client.exposition import choose_encoder

from rejoinder.agent.metrics.call_metrics import CallMetrics
from rejoinder.agent.metrics.collectors import ServerCollector
from rejoinder.agent.metrics.gpu import measure_gpus, open_nvml
from rejoinder.agent.metrics.labels import BoundedLabel
from rejoinder.agent.metrics.loop_lag import measure_lag
from rejoinder.agent.metrics.measures import Measurement
from rejoinder.agent.metrics.meters import WIRE_LABELS, Meters, Uncreated
from rejoinder.agent.wires.socket import Traffic
from rejoinder.pipeline import Models


class ServerMetrics:
    """All metrics of one server.

    llm: the public name of the language model. models: returns all sets of models that are loaded.
    """

    def __init__(
        self,
        llm: str = "",
        models: Callable[[], Iterable[Models]] = tuple,
    ) -> None:
        self.meters = Meters()
        self._llm = llm
        self._wires = BoundedLabel(WIRE_LABELS)
        self._traffic: dict[str, Traffic] = {}
        self._live: dict[CallMetrics, str] = {}
        self._spoken = 0.0
        self.meters.registry.register(ServerCollector(models, self._sessions, self._traffic))

    def observe(self, wire: str) -> CallMetrics:
        """Return what follows a new call of a wire."""
        wire = self._wires.of(wire)
        traffic = self._traffic.setdefault(wire, Traffic())
        return CallMetrics(self.meters, wire, self._llm, traffic, self._live)

    def exposed(self, accept: str) -> tuple[bytes, str]:
        """Return all metrics and their content type.

        accept: the header of the request, which may ask for OpenMetrics.
        """
        self.settle()
        encode, content_type = choose_encoder(accept)
        return encode(Uncreated(self.meters.registry)), content_type

    def families(self) -> list[Metric]:
        """Return all metrics as they are now."""
        self.settle()
        return list(Uncreated(self.meters.registry).collect())

    def settle(self) -> None:
        """Count what running calls have counted since the last time."""
        for call in list(self._live):
            call.settle()
        spoken = sum(traffic.spoken for traffic in self._traffic.values())
        self.meters.record([Measurement("audio_seconds", spoken - self._spoken, ("agent_speech",))])
        self._spoken = spoken

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
