"""Shows calls to operators: the running ones, and those that are kept."""
