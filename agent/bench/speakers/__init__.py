"""Measures which voices take the floor: the caller's, and those in the background."""
