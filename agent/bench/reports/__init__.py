"""How benchmarks show progress, figures and pictures."""
