"""Scripts that measure on a machine with a GPU."""
