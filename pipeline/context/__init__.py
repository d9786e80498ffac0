"""What a prompt holds of a long conversation: its tokens, and a summary of what has left it."""
