"""A pause in the user's turn: what is known of it, and when it is the end of the turn."""

from __future__ import annotations

from dataclasses import dataclass, field

from rejoinder.pipeline.audio.chunk import in_samples
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.interfaces import Transcript
from rejoinder.pipeline.options import Endpointing
from rejoinder.pipeline.turns.patience import Patience
from rejoinder.pipeline.turns.turn_end import PauseEvidence, wait_ms, wants_more

EAGER_MS = 250
"""Time to a reply's first sound (docs/lab/latency.md). Replies to incomplete words start no earlier."""
ANSWER_MS = 400
"""Longest wait for the turn model's first answer, which comes late on a busy machine."""

EMPTY_MS = 1_000
"""Silence that ends a turn without words that stopped the agent, which then goes on: a cough, or laughter."""


@dataclass(slots=True)
class Pause:
    """A pause. Positions and durations are samples at 16 kHz.

    start: end of the last voiced sample.
    forced: whether the turn ends here however short the silence is, and speech does not resume it.
    quiet_from: where the silence begins: ``start``, or sooner if the level fell before.
    words: the final transcript of the turn so far, None before it is known.
    end_probability: the recogniser's probability that the turn is over, None if unknown.
    probabilities: the turn model's, that the turn is over, in order.
    eager: whether the first sign of the end of the turn has been reported.
    error: why the words are not known, if the recogniser failed; ``words`` is "" then.
    """

    start: int
    forced: bool = False
    quiet_from: int = field(init=False)
    words: str | None = None
    end_probability: float | None = None
    probabilities: list[float] = field(default_factory=list)
    eager: bool = False
    error: ModelError | None = None

    def __post_init__(self) -> None:
        self.quiet_from = self.start

    def is_covered_by(self, transcript: Transcript) -> bool:
        """Return whether the transcript is final, and has all that was said before the pause."""
        return transcript.is_final and transcript.end >= self.start

    def level_fell(self, at: int) -> None:
        """Count the silence from sample ``at``, if it is before the start of the pause."""
        self.quiet_from = min(at, self.start)

    def wait(self, options: Endpointing, patience: Patience, asked: str) -> int:
        """Return the silence after which the turn ends, by its words, its sound and the patience.

        asked: the agent's words before the turn.
        """
        # Without words there is nothing to answer yet, but they may follow a hesitant start.
        if not self.words:
            return in_samples(options.max_wait_ms)
        known = PauseEvidence(
            self.probabilities, self.words, asked=asked, end_probability=self.end_probability
        )
        odds, unsure_ms = patience.applied(options.patience, options.unsure_wait_ms)
        least_ms = max(wait_ms(known, odds, unsure_ms), options.min_wait_ms)
        return in_samples(min(least_ms, options.max_wait_ms))

    def is_over(self, silence: int, wait: int, options: Endpointing, has_turn_model: bool) -> bool:
        """Return whether the turn is over after this silence. It waits for the turn model's first answer.

        wait: as ``wait`` returns it.
        """
        if has_turn_model and not self.probabilities:
            asking = self.start - self.quiet_from + in_samples(ANSWER_MS)  # the pause is noticed first
            wait = max(wait, min(asking, in_samples(options.max_wait_ms)))
        return self.forced or silence >= wait

    def may_be_over(self, silence: int, wait: int, asked: str) -> bool:
        """Return whether a reply should start: the words sound whole, or the turn may end soon.

        wait: as ``wait`` returns it. asked: the agent's words before the turn.
        """
        if not self.words:
            return False
        soon = silence >= wait - in_samples(EAGER_MS)
        return soon or not wants_more(self.words, asked, self.end_probability)
