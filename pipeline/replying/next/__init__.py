"""How the agent goes on with a reply that was cut off."""
