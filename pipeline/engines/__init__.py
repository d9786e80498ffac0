"""Engines: one thread for each model, deadlines, and load shedding."""
