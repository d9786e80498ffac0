"""What is known of callers from earlier calls: where it is kept, and how a call reads and changes it."""
