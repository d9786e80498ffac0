"""Turn-taking: the end of a turn, interruptions and long silences."""
