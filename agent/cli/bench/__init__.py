"""``rejoinder bench``: one file per command."""
