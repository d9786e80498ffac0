"""What a server measures, traces and exports, by its settings and OpenTelemetry's environment variables."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from rejoinder.agent.app.call import CallInfo
from rejoinder.agent.config import Settings
from rejoinder.agent.metrics.llm_identities import llm_identities
from rejoinder.agent.metrics.loop_watch import watching_loop
from rejoinder.agent.metrics.measures import Measurement
from rejoinder.agent.metrics.otlp import exports, require_opentelemetry
from rejoinder.agent.metrics.server_metrics import ServerMetrics
from rejoinder.agent.wires.observer import CallObserver
from rejoinder.agent.wires.transport import Traffic
from rejoinder.pipeline import Models

if TYPE_CHECKING:
    from rejoinder.agent.metrics.otlp_metrics import MetricsExport
    from rejoinder.agent.metrics.tracing import Tracing


class Telemetry:
    """The metrics and the traces of one server. metrics: None if neither Prometheus nor OTLP gets them.

    models: returns all sets of models that are loaded. environment: names a collector for OTLP. Raises
    ConfigError for a protocol that is not supported, and without the extra ``otel``.
    """

    def __init__(
        self,
        settings: Settings,
        models: Callable[[], Iterable[Models]],
        environment: Mapping[str, str],
    ) -> None:
        llms = llm_identities(settings)
        self.metrics: ServerMetrics | None = None
        self._tracing: Tracing | None = None
        self._export: MetricsExport | None = None
        if settings.metrics or exports("metrics", environment):
            self.metrics = ServerMetrics(llms.label, models)
        if exports("traces", environment):
            require_opentelemetry()
            from rejoinder.agent.metrics.call_trace import CONTENT_VARIABLE
            from rejoinder.agent.metrics.tracing import Tracing

            self._tracing = Tracing(llms, environment.get(CONTENT_VARIABLE, "").lower() == "true")
        if self.metrics and exports("metrics", environment):
            require_opentelemetry()
            from rejoinder.agent.metrics.otlp_metrics import MetricsExport

            self._export = MetricsExport(self.metrics, environment)

    def observe(self, info: CallInfo) -> list[CallObserver]:
        """Return what follows a new call. The current task has to be the one that runs it."""
        measuring = [self.metrics.observe(info.wire)] if self.metrics else []
        return [*measuring, *([self._tracing.observe(info)] if self._tracing else [])]

    def count(self, metric: str, *labels: str) -> None:
        """Count an event of the server. labels: of the metric."""
        if self.metrics:
            self.metrics.meters.record([Measurement(metric, labels=labels)])

    def traffic(self, wire: str) -> Traffic:
        """Return what counts the messages of all calls of a wire."""
        return self.metrics.traffic(wire) if self.metrics else Traffic()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Measure and export for the length of the block, then export what is left.

        Cancelling ends both; what is left is exported all the same.
        """
        async with AsyncExitStack() as stack:
            stack.enter_context(watching_loop())
            if self.metrics:
                await stack.enter_async_context(self.metrics.running())
            if self._tracing:
                stack.push_async_callback(self._tracing.aclose)
            if self._export:
                stack.push_async_callback(self._export.aclose)
                exporting = asyncio.create_task(self._export.run(), name="otlp")
                stack.callback(exporting.cancel)
            yield
