"""What benchmark callers say: recordings, replies and interruptions."""
