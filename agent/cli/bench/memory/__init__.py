"""Benches of a server's memory over time: a soak with callers of all wires, and one long call."""
