"""An agent's own part in guardrails: its functions, and what it learns of suspicious turns."""
