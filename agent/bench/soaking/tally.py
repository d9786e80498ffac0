"""What the callers of a soak count: their calls, turns and ends, since the last sample."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field


@dataclass(slots=True)
class SoakTally:
    """Counts of one interval.

    counts: by what happened, such as "asked" and "vanished". wires: calls begun, by wire. latencies: seconds
    from the last word to the first audible sample, of turns that met a silent agent. lost: the reasons of
    calls that the server ended or refused.
    """

    counts: Counter[str] = field(default_factory=Counter)
    wires: Counter[str] = field(default_factory=Counter)
    latencies: list[float] = field(default_factory=list)
    lost: Counter[str] = field(default_factory=Counter)

    def turn(self, seconds: float | None, counts: bool) -> None:
        """Count a turn and its answer, None for none. counts: whether its latency counts, too."""
        self.counts["asked"] += 1
        self.counts["answered"] += seconds is not None
        if seconds is not None and counts:
            self.latencies.append(seconds)

    def taken(self) -> SoakTally:
        """Return the counts so far, and begin at zero."""
        taken = SoakTally(self.counts, self.wires, self.latencies, self.lost)
        self.counts, self.wires, self.latencies, self.lost = Counter(), Counter(), [], Counter()
        return taken
