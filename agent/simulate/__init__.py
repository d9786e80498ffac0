"""Simulated callers, lines and models in virtual time."""
