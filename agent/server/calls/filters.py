"""Which calls a client asks for."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rejoinder.pipeline import ProtocolError

MAX_LISTED = 200
"""Most calls in one answer."""
LISTED = 50
"""Calls in one answer where the client names no number."""
MAX_SEARCHED_WORDS = 200
"""Most characters of a search."""


@dataclass(frozen=True, slots=True)
class CallFilter:
    """What calls have in common.

    wire: the name of their protocol, "" for any. since, before: when they began, in seconds since the epoch.
    errors: only those with an error. slow_ms: only those with a turn of this latency. words: text that a side
    has said, in any case. limit: most calls.
    """

    wire: str = ""
    since: float = -math.inf
    before: float = math.inf
    errors: bool = False
    slow_ms: float = 0.0
    words: str = ""
    limit: int = LISTED

    @classmethod
    def of(cls, query: Mapping[str, str]) -> CallFilter:
        """Return the filter in the parameters of a URL. Raises ProtocolError."""
        return cls(
            query.get("wire", ""),
            _number(query, "since", -math.inf),
            _number(query, "before", math.inf),
            query.get("errors", "") in ("1", "true", "on"),
            _number(query, "slow_ms", 0.0),
            " ".join(query.get("words", "")[:MAX_SEARCHED_WORDS].casefold().split()),
            max(1, min(MAX_LISTED, int(_number(query, "limit", LISTED)))),
        )

    def fits(self, summary: Mapping[str, Any], words: str) -> bool:
        """Return whether a call belongs to them. words: of the call, in lower case."""
        return (
            self.wire in ("", summary["wire"])
            and self.since <= summary["began"] < self.before
            and (not self.errors or summary["errors"] > 0)
            and summary["slowest_ms"] >= self.slow_ms
            and self.words in words
        )


def _number(query: Mapping[str, str], name: str, usual: float) -> float:
    try:
        number = float(query.get(name) or usual)
    except ValueError:
        number = math.nan
    if math.isnan(number) or (name == "limit" and math.isinf(number)):
        raise ProtocolError(f"{name} has to be a number", "invalid_value", name)
    return number
