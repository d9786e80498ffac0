"""Limits per API key and address: what they allow, and what is used here and at all servers."""
