"""Routing between language models: fits the classifier, and measures what routing saves."""
