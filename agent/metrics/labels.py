"""Label values that cannot create an unbounded number of series."""

from __future__ import annotations

OTHER_LABEL = "other"
"""Stands for all values beyond the limit of a label."""
MAX_LABEL_CHARS = 64
"""Most characters of a label's value."""


class BoundedLabel:
    """Keeps the first ``most`` values of a label, and calls all others ``OTHER_LABEL``.

    Values come from settings, adapters and clients. Prometheus keeps each distinct value for ever
    (https://prometheus.io/docs/practices/naming/#labels).
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[str, str] = {}

    def of(self, value: str) -> str:
        """Return the value to use for ``value``."""
        if value not in self._known:
            if len(self._known) >= self._most:
                return OTHER_LABEL
            self._known[value] = value[:MAX_LABEL_CHARS]
        return self._known[value]
