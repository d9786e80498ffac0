"""Rules that choose a language model: how well the classifier works, and what the rules save."""
