"""Faults, caused from outside of the product, and what callers and operators notice of them."""
