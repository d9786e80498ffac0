"""Named marks on a turn, and the latency budget they add up to."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

FIRST_MARK, LAST_MARK = "speech_ended", "audio_sent"

PART_NAMES = {
    "pause_seen": "notice the pause",
    "transcribed": "final transcript",
    "reply_started": "start the reply",
    "first_token": "LLM first token",
    "first_clause": "LLM first clause",
    "first_audio": "TTS first audio",
    "committed": "wait for the end of the turn",
    "audio_sent": "send",
}
"""What the interval that *ends* at a mark is called."""


@dataclass(slots=True)
class Trace:
    """When what happened in one turn; times are ``loop.time()`` in seconds, the first of each name wins."""

    turn: int
    marks: dict[str, float] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)

    def mark(self, name: str, at: float) -> None:
        """Note that ``name`` happened at ``at``."""
        self.marks.setdefault(name, at)

    def budget(self) -> list[tuple[str, float]]:
        """Return (part, milliseconds) from the last speech sample to the first audio sent.

        The marks are put in order of time and each interval is named after the mark that ends it, so the
        parts add up to the whole by construction, whatever ran in parallel. Empty while nothing was sent.
        """
        if FIRST_MARK not in self.marks or LAST_MARK not in self.marks:
            return []
        begin, end = self.marks[FIRST_MARK], self.marks[LAST_MARK]
        parts = []
        for name, at in sorted(self.marks.items(), key=lambda mark: mark[1]):
            if name in PART_NAMES and begin <= at <= end:
                parts.append((PART_NAMES[name], (at - begin) * 1000.0))
                begin = at
        return parts

    def making(self) -> float:
        """Return the seconds of the budget but for the wait for the end of the turn; 0 for none."""
        return sum(ms for name, ms in self.budget() if name != PART_NAMES["committed"]) / 1000.0

    def to_json(self) -> str:
        """Return one JSON line: milliseconds since the first mark, the budget and the counts."""
        origin = min(self.marks.values(), default=0.0)
        return json.dumps(
            {
                "turn": self.turn,
                "marks": {name: round((at - origin) * 1000.0, 1) for name, at in self.marks.items()},
                "budget": [{"name": name, "ms": round(ms, 1)} for name, ms in self.budget()],
                "counts": self.counts,
            }
        )
