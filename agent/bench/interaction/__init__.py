"""Calls with scripted callers, and the figures of tau-voice over them."""
