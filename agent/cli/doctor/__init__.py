"""``rejoinder doctor``: what is missing on this machine, and the commands that fix it."""
