"""The Python client, and the microphone and speaker of this machine."""
