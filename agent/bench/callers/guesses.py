"""Counts a server's speculative replies that it kept or dropped, as the server reports them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Guesses:
    """Counts over replies: kept guesses, dropped guesses, and the tokens of dropped guesses."""

    replies: int = 0
    kept: int = 0
    dropped: int = 0
    tokens_wasted: int = 0

    def __add__(self, other: Guesses) -> Guesses:
        """Return the sum of two counts."""
        return Guesses(
            self.replies + other.replies,
            self.kept + other.kept,
            self.dropped + other.dropped,
            self.tokens_wasted + other.tokens_wasted,
        )

    def __str__(self) -> str:
        """Return one sentence for the terminal."""
        made = self.kept + self.dropped
        share = f" ({100 * self.kept / made:.0f} %)" if made else ""
        wasted = self.tokens_wasted / max(1, self.replies)
        return f"Guesses at an end: {self.kept} of {made} kept{share}; {wasted:.1f} tokens wasted per turn."


def of_replies(counts: Iterable[Mapping[str, float]]) -> Guesses:
    """Add up the counts that the server sent with each reply; zero if it sends none."""
    total = Guesses()
    for counted in counts:
        if "guesses_kept" in counted:
            kept, dropped = int(counted["guesses_kept"]), int(counted["guesses_dropped"])
            total += Guesses(1, kept, dropped, int(counted["tokens_wasted"]))
    return total


def report(guesses: Guesses) -> dict[str, Any] | None:
    """Return the counts as JSON data, None if the server sent none."""
    if not guesses.replies:
        return None
    made = guesses.kept + guesses.dropped
    return {
        **asdict(guesses),
        "kept_share": guesses.kept / made if made else None,
        "tokens_wasted_per_turn": guesses.tokens_wasted / guesses.replies,
    }
