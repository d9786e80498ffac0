"""Who answered an outgoing call, and messages for answering machines."""
