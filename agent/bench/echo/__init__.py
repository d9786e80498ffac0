"""Measures the removal of the agent's own voice from the microphone, beside other echo cancellers."""
