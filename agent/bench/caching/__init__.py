"""Sets of questions that measure the cache of answers."""
