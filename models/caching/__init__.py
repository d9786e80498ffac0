"""Keeps spoken answers, and finds them again for questions of the same meaning."""
