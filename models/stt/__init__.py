"""Speech recognisers (STT)."""
