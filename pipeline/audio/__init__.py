"""Audio: chunks, resampling, loudness and echo removal."""
