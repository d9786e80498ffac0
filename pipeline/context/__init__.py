"""What a prompt contains besides the last words: its size, retrieved knowledge, and summaries."""
