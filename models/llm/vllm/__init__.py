"""vLLM's engine inside this process."""
