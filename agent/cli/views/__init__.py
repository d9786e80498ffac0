"""Terminal views of a call."""
