"""The setting of the metrics. OpenTelemetry has its own variables, which begin with OTEL_."""

from __future__ import annotations

from pydantic import BaseModel, Field


class MetricsSettings(BaseModel):
    """The setting of the metrics for Prometheus."""

    metrics: bool = Field(
        True,
        description="serve metrics for Prometheus at /metrics: to this machine, or to clients with a key",
    )
