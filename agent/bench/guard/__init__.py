"""What guardrails cost, and how often a prompt injection is noticed."""
