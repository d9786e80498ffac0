"""Splits a reply in text only into pieces that a guard can judge."""

from __future__ import annotations

import re

MAX_PIECE = 160
"""Most characters of a piece."""
_END = re.compile(r"[.!?…]+[\"')\]*]*\s+|\n+|[。！？]")


class SentenceBuffer:
    """Collects text and returns it sentence by sentence. The pieces together are the text."""

    def __init__(self) -> None:
        self._text = ""

    def feed(self, text: str) -> list[str]:
        """Add text; return the pieces that it completes."""
        self._text += text
        pieces, begin = [], 0
        while (end := self._end(begin)) is not None:
            pieces.append(self._text[begin:end])
            begin = end
        self._text = self._text[begin:]
        return pieces

    def flush(self) -> str:
        """Return the rest of the text, which may be empty."""
        rest, self._text = self._text, ""
        return rest

    def _end(self, begin: int) -> int | None:
        limit = begin + MAX_PIECE
        if found := _END.search(self._text, begin, limit):
            return found.end()
        if len(self._text) > limit:
            return self._text.rfind(" ", begin, limit) + 1 or limit
        return None
