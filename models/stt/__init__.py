"""Speech recognisers."""
