"""``rejoinder bench`` commands about who has the floor: turns, interruptions, echo, and other voices."""
