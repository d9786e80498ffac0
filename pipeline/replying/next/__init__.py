"""Which reply comes next."""
