"""An agent of an integrator: its instructions, its tools, and what it does on each call."""
