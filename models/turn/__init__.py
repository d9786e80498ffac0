"""Turn models: the probability that the user's turn is over, by its sound.

``smart_turn.py`` is the adapter. ``head.py`` is its last layer, which ``rejoinder bench turns --fit`` fits.
"""
