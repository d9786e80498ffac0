"""Audio: chunks, resampling, loudness, and removal of the agent's echo."""
