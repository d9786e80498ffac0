"""Named times of a reply, and the latency budget computed from them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

FIRST_MARK = "speech_ended"
"""The mark at which the latency budget begins."""
LAST_MARK = "audio_sent"
"""The mark at which the latency budget ends."""

PART_NAMES = {
    "pause_seen": "notice the pause",
    "transcribed": "final transcript",
    "floor_free": "wait for the earlier reply",
    "reply_started": "start the reply",
    "cache": "look into the cache",
    "context": "wait for context",
    "hedged": "LLM deadline",
    "failed_over": "LLM failed",
    "opened": "wait for the opening",
    "first_token": "LLM first token",
    "first_clause": "LLM first clause",
    "first_audio": "TTS first audio",
    "guarded": "wait for the guard",
    "committed": "wait for the end of the turn",
    "audio_sent": "send",
}
"""The name of the interval that *ends* at each mark."""


@dataclass(slots=True)
class Trace:
    """The times and counts of one reply.

    turn: number of the reply.
    said: the user's words that the reply answers, "" if it answers the history as it stands.
    marks: ``loop.time()`` in seconds for each name; the first mark of a name counts. ``floor_free``: the end
        of an earlier reply that speech could not stop, where the user said these words during it.
    counts: figures of the reply, such as the tokens of discarded replies.
    tokens: pieces that the language model streamed for the reply. waited: seconds that the reply waited for
        them, from the first piece on; the time in which a full channel held the model up does not count.
        until: loop time of the last piece, 0 without one.
    request: span id of the requests to the language model's server, "" if none carries a trace context.
    found: what was retrieved for the user's words (``Options.context``).
    models: the language models that wrote the reply, in order, if they are several.
    route: which of them a rule has chosen, and why; empty without rules.
    """

    turn: int
    said: str = ""
    marks: dict[str, float] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)
    tokens: int = 0
    waited: float = 0.0
    until: float = 0.0
    request: str = ""
    found: str = ""
    models: list[str] = field(default_factory=list)
    route: Mapping[str, str] = field(default_factory=dict)

    def mark(self, name: str, at: float) -> None:
        """Record that ``name`` happened at ``at``, unless it is recorded already."""
        self.marks.setdefault(name, at)

    def count(self, amounts: Mapping[str, float]) -> None:
        """Add each amount to the count with its name."""
        for name, amount in amounts.items():
            self.counts[name] = self.counts.get(name, 0) + amount

    def parts(self) -> list[tuple[str, float]]:
        """Return (mark, seconds) pairs from the last speech sample to the first audio sent.

        The marks are sorted by time, and each interval is that before its mark. So the parts add up to the
        whole, whatever ran in parallel. The list is empty until audio is sent.
        """
        if FIRST_MARK not in self.marks or LAST_MARK not in self.marks:
            return []
        begin, end = self.marks[FIRST_MARK], self.marks[LAST_MARK]
        parts = []
        for name, at in sorted(self.marks.items(), key=lambda mark: mark[1]):
            if name in PART_NAMES and begin <= at <= end:
                parts.append((name, at - begin))
                begin = at
        return parts

    @property
    def latency(self) -> float:
        """The sum of ``parts``, in seconds; 0 until audio is sent."""
        if FIRST_MARK not in self.marks or LAST_MARK not in self.marks:
            return 0.0
        return self.marks[LAST_MARK] - self.marks[FIRST_MARK]

    @property
    def silence(self) -> float:
        """The part of ``latency`` in which no earlier reply could be heard, in seconds."""
        begun = self.marks.get(FIRST_MARK, 0.0)
        return self.latency and self.latency - (self.marks.get("floor_free", begun) - begun)

    def budget(self) -> list[tuple[str, float]]:
        """Return ``parts`` by their names, in milliseconds."""
        return [(PART_NAMES[mark], seconds * 1000.0) for mark, seconds in self.parts()]

    def making(self) -> float:
        """Return the seconds of the budget without the waits for the caller and an earlier reply.

        0 without a budget.
        """
        return sum(seconds for mark, seconds in self.parts() if mark not in ("committed", "floor_free"))

    @property
    def origin(self) -> float:
        """The time of the earliest mark, 0 without marks."""
        return min(self.marks.values(), default=0.0)

    def described(self) -> dict[str, Any]:
        """Return the trace for JSON, without words: marks in ms since ``origin``, budget and counts."""
        return {
            "turn": self.turn,
            "marks": {name: round((at - self.origin) * 1000.0, 1) for name, at in self.marks.items()},
            "budget": [{"name": name, "ms": round(ms, 1)} for name, ms in self.budget()],
            "counts": self.counts,
            **({"models": self.models} if self.models else {}),
            **({"route": dict(self.route)} if self.route else {}),
        }

    def to_json(self) -> str:
        """Return ``described`` as one line of JSON."""
        return json.dumps(self.described())
