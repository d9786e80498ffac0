"""Who has the floor: end of turn, interruption and silence, as plain decisions."""
