"""The reply: from a speculative start to what was heard of it."""
