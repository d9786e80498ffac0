"""Long calls: what an agent still knows at the end, and how long its prompts are."""
