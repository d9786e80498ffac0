"""Calculates and simulates how many machines a number of calls needs."""
