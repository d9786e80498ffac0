"""Benchmarks: what is measured, on which cases, and how it is reported."""
