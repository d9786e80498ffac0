"""OpenTelemetry: whether it is wanted, by its standard environment variables.

https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/ and
https://opentelemetry.io/docs/specs/otel/protocol/exporter/.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from importlib import import_module

from rejoinder.agent.config import ConfigError
from rejoinder.models.hints import install

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
"""The variable with the address of a collector. The others count only if it, or that of a signal, is set."""
INTERVAL_VARIABLE = "OTEL_METRIC_EXPORT_INTERVAL"
"""Environment variable: milliseconds between two exports."""
DEFAULT_INTERVAL_MS = "60000"
"""Its default, as the specification has it."""
ONLY_PROTOCOL = "http/protobuf"
"""The protocol that this program speaks, which is OpenTelemetry's default."""


def exports(signal: str, environment: Mapping[str, str]) -> bool:
    """Return whether the environment names a collector for a signal: traces or metrics.

    Raises ConfigError for another protocol than ``ONLY_PROTOCOL``.
    """
    name = signal.upper()
    exporter = environment.get(f"OTEL_{name}_EXPORTER")  # an empty variable counts as unset
    own = f"OTEL_EXPORTER_OTLP_{name}_ENDPOINT"
    if exporter == "none" or environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    if not (environment.get(ENDPOINT) or environment.get(own)):
        return False
    for variable in (f"OTEL_EXPORTER_OTLP_{name}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        if (environment.get(variable) or ONLY_PROTOCOL) != ONLY_PROTOCOL:
            raise ConfigError(f"{variable} is {environment[variable]!r}: only {ONLY_PROTOCOL} is supported")
    return True


def export_interval(environment: Mapping[str, str]) -> float:
    """Return the seconds between two exports of metrics.

    Raises ConfigError unless the variable is a positive number of milliseconds.
    """
    given = environment.get(INTERVAL_VARIABLE) or DEFAULT_INTERVAL_MS
    try:
        milliseconds = float(given)
    except ValueError:
        milliseconds = 0.0
    if not 0.0 < milliseconds < math.inf:
        raise ConfigError(f"{INTERVAL_VARIABLE} is {given!r}: set it to milliseconds above 0, or unset it")
    return milliseconds / 1000.0


def require_opentelemetry() -> None:
    """Raise ConfigError if OpenTelemetry's SDK or its exporter is not installed.

    Other packages bring its interface, the top of the same namespace, so that does not tell.
    """
    try:
        import_module("opentelemetry.sdk.trace")
        import_module("opentelemetry.exporter.otlp.proto.http")
    except ImportError as error:
        reason = f"{ENDPOINT} is set, and {error.name} is not installed"
        raise ConfigError(f"{reason}; run: {install('otel')}, or unset it") from error
