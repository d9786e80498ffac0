"""Runs the functions of an integrator, checks them, and names them in messages."""
