"""Benchmarks of the prompts that a language model keeps."""
