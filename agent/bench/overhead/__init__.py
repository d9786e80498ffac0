"""Measures what Rejoinder costs without its models: per frame, and per message."""
