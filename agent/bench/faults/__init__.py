"""Faults that are caused from outside, and what callers and operators notice of them."""
