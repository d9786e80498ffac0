"""Voices (TTS): ``piper.py`` and ``hibari.py``, and what all voices share.

To add a voice of another kind, write a file like ``hibari.py``: a function that turns words into audio,
wrapped in ``Voice``, which trims silence, finds the times of words, and runs one engine. Describe it by an
``ADAPTER`` at its end, and add its line to ``models/registry.py``. Another voice of Piper needs no code: it
is a path, or an entry in ``models/weights/catalog.toml``.
"""
