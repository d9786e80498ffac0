"""The agent's replies: from a speculative start to the words that the user heard."""
