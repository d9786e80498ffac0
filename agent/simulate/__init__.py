"""Simulated callers in virtual time."""
