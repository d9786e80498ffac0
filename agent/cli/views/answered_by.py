"""Names the language models that wrote a reply, where there are several, and what happened meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

EVENTS = {"hedges": "asked a second", "failovers": "failed over"}
"""Counts of a trace, and what each of them means in a line of text."""


def answered_by(models: Sequence[str], counts: Mapping[str, float]) -> str:
    """Return for example "big, then little (failed over, cost 0.0012)"; "" where there is one model only.

    models: the names in a trace, in order. counts: those of the trace.
    """
    if not models:
        return ""
    notes = [words for name, words in EVENTS.items() if counts.get(name)]
    if cost := counts.get("cost"):
        notes.append(f"cost {cost:.2g}")
    return ", then ".join(models) + (f" ({', '.join(notes)})" if notes else "")
