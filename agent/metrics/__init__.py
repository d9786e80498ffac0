"""Metrics and traces of a server, for operators: Prometheus and OpenTelemetry."""
