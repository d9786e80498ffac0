"""The words that Whisper recognises in one window, and when they count as invented."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from rejoinder.pipeline.audio.chunk import Samples

INVENTED = ((0.6, -1.0), (0.2, -2.25))
"""Words count as invented above this probability of no speech and below this mean log-probability.

The first pair is Whisper's own rule (Radford et al. 2022, 4.5). The second was found on recordings of noise
and music. It keeps hesitant speech, whose words are uncertain but whose probability of no speech is low.
"""


@dataclass(frozen=True, slots=True)
class Words:
    """The result of one window.

    text: the words, "" if there are none.
    no_speech: Whisper's probability that the window has no speech.
    confidence: mean log-probability of the tokens.
    others: alternative texts that are nearly as likely.
    ending: mean encoder states at the end of the audio, float32 [windows * width]; empty if not kept.
    over: probability that the turn is over, from ``ending``; None if unknown.
    """

    text: str
    no_speech: float = 1.0
    confidence: float = 0.0
    others: tuple[str, ...] = ()
    ending: Samples = field(default_factory=lambda: np.zeros(0, np.float32))
    over: float | None = None

    def without_invented(self) -> Words:
        """Return the words; without text if Whisper doubts that there is speech, or only marks are left."""
        doubted = any(self.no_speech > silent and self.confidence < unsure for silent, unsure in INVENTED)
        nothing = doubted or not any(map(str.isalnum, self.text))
        return replace(self, text="", others=(), over=None) if nothing else self


NO_WORDS = Words("")
"""The result for audio without words."""
