"""Makes spans whose times are known only afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from opentelemetry.context import Context
from opentelemetry.trace import NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation import set_span_in_context
from opentelemetry.util.types import AttributeValue

Attributes = Mapping[str, AttributeValue]
"""The attributes of a span."""


class SpanIds(Protocol):
    """Generates ids. chosen: the id of the next span, 0 for a random one."""

    chosen: int


class Spans:
    """Makes spans of one call. offset: what to add to loop times for seconds since the epoch."""

    def __init__(self, tracer: Tracer, ids: SpanIds, offset: float) -> None:
        self._tracer = tracer
        self._ids = ids
        self._offset = offset

    def begin(
        self,
        name: str,
        at: float,
        parent: Context | SpanContext,
        attributes: Attributes,
        kind: SpanKind = SpanKind.INTERNAL,
        id: str = "",
    ) -> Span:
        """Begin a span at loop time ``at``. id: its own id in hexadecimal digits, "" for a random one."""
        if isinstance(parent, SpanContext):
            parent = set_span_in_context(NonRecordingSpan(parent))
        self._ids.chosen = int(id or "0", 16)
        begun = self._tracer.start_span(name, parent, kind, attributes, start_time=self._nanoseconds(at))
        self._ids.chosen = 0
        return begun

    def end(self, span: Span, at: float, error: str = "") -> None:
        """End a span at loop time ``at``. error: its ``error.type``, "" for none."""
        if error:
            span.set_attribute("error.type", error)
            span.set_status(Status(StatusCode.ERROR))
        span.end(self._nanoseconds(at))

    def _nanoseconds(self, at: float) -> int:
        return int((at + self._offset) * 1e9)
