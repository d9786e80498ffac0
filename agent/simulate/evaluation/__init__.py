"""Evaluates an agent: holds a list of calls with a real language model, several times each."""
