"""LocalAgreement: accept the words that two successive hypotheses share.

Macháček, Dabre and Bojar, "Turning Whisper into Real-Time Transcription System" (2023), after Liu et al.
(2020).
"""

from __future__ import annotations

from rejoinder.pipeline.words import normalise


class LocalAgreement:
    """Builds a text that only grows, from hypotheses that may change.

    agreed: the words that two successive hypotheses shared so far.
    """

    def __init__(self) -> None:
        self.agreed: list[str] = []
        self._previous: list[str] = []

    def feed(self, hypothesis: str) -> str:
        """Add the next hypothesis; return the text of all agreed words."""
        words = hypothesis.split()
        for index in range(len(self.agreed), min(len(words), len(self._previous))):
            if normalise(words[index]) != normalise(self._previous[index]):
                break
            self.agreed.append(words[index])
        self._previous = words
        return " ".join(self.agreed)
