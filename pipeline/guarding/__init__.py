"""Guardrails: what the agent's words must pass before the caller hears them."""
