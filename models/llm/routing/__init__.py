"""One language model over several by rules: which one answers a question, and what is said until it does."""
