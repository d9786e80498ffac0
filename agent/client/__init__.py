"""The Python client, and this machine's microphone and speaker."""
