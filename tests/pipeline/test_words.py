"""Words in their form for comparisons."""

from __future__ import annotations

from rejoinder.pipeline.words import normalise


def test_normalised_words() -> None:
    assert normalise("  It's 5 O'clock, isn't it?! ") == "it's 5 o'clock isn't it"
    assert normalise("Ça va?") == "ça va"
    assert normalise("…") == ""
