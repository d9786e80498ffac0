"""Clients that attack a server, beside callers who talk."""
