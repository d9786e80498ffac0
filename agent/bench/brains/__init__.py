"""Language models by size: how fast each is on this machine, with real weights or stand-ins."""
