"""Whether a request belongs to a reply that no caller waits for yet."""

from __future__ import annotations

from rejoinder.pipeline.engines.deadline import SPARE_SECONDS, current

GUESS_CHECK_SECONDS = 0.05
"""A deadline that passes while a reply is only a guess is checked again this often, in seconds."""


def is_guess() -> bool:
    """Return whether the request belongs to a reply that is not committed, or is paused."""
    deadline = current.get()
    if deadline is None or deadline.certain:
        return False
    return deadline.due is None and deadline.slack < SPARE_SECONDS
