"""``rejoinder bench``: one file for each benchmark's command."""
