"""A server under callers of all wires for hours: what they do, what is sampled, and which figures trend."""
