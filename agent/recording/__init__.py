"""Recordings of calls: what is heard of both sides, its file, and what happens to it later."""
