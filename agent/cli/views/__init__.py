"""What a call looks like in a terminal."""
