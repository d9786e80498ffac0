"""Traces of calls for OpenTelemetry: opens the exporter, and begins the trace of each call."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from rejoinder.agent.app.call import CallInfo
from rejoinder.agent.metrics.call_trace import CallTrace
from rejoinder.agent.metrics.last_export import finish
from rejoinder.agent.metrics.llm_identities import LlmIdentities
from rejoinder.agent.metrics.spans import Spans
from rejoinder.pipeline.upstream import call_context

SCOPE = "rejoinder"
"""The name of the instrumentation scope, and of the service where the environment names none."""


class ChosenIds(RandomIdGenerator):
    """Random ids, except for a span whose id another server knows already. chosen: of the next span."""

    def __init__(self) -> None:
        super().__init__()
        self.chosen = 0

    def generate_span_id(self) -> int:
        """Return ``chosen`` once, if it is set, and a random id otherwise."""
        chosen, self.chosen = self.chosen, 0
        return chosen or super().generate_span_id()


def resource() -> Resource:
    """Return what describes this process: OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES win."""
    return Resource.create({SERVICE_NAME: SCOPE}).merge(OTELResourceDetector().detect())


class Tracing:
    """Exports one trace for each call, in a thread of its own.

    The exporter reads OpenTelemetry's environment variables: endpoint, headers, time-out, sampler and so on.
    llms: the language models, which spans name. has_words: whether spans have the words of the conversation.
    """

    def __init__(self, llms: LlmIdentities, has_words: bool = False) -> None:
        self._ids = ChosenIds()
        self._provider = TracerProvider(resource=resource(), id_generator=self._ids, shutdown_on_exit=False)
        self._exporter = OTLPSpanExporter()
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._tracer = self._provider.get_tracer(SCOPE)
        self._llms = llms
        self._has_words = has_words

    def observe(self, info: CallInfo) -> CallTrace:
        """Begin the trace of a call. The call's request may name the trace that it belongs to.

        All requests that the current task, and the tasks it starts, make from now on carry the trace.
        """
        headers: Mapping[str, str] = info.headers
        parent = TraceContextTextMapPropagator().extract(dict(headers))
        loop = asyncio.get_running_loop()
        spans = Spans(self._tracer, self._ids, time.time() - loop.time())
        trace = CallTrace(spans, info, parent, loop.time, self._llms, self._has_words)
        call_context.set(trace.traceparent)
        return trace

    async def aclose(self) -> None:
        """Export what is left. Cancelling leaves that to its thread."""
        await finish(self._provider.shutdown, self._exporter.shutdown)
