"""Answers that may be used again: what a cache is asked, and what it returns."""
