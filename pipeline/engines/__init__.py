"""Engines: one thread per model, deadlines for their work, and load shedding."""
