"""The benches of language models: one file per command."""
