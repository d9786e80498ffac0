"""Callers that benchmarks send to a server, in real time."""
