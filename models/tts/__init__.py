"""Voices, and what they share."""
