"""Guardrails of other libraries and servers: personal data in a text, and moderation endpoints."""
