"""A caller's record of a call: its turns as the server reports them, and the agent's replies."""

from __future__ import annotations

from dataclasses import dataclass, field

from rejoinder.agent.client.audio import CLIENT_RATE
from rejoinder.agent.simulate.player import Cut

CHARACTERS_PER_SECOND = 15.0
"""Assumed speed of speech if the length of a clause's audio is unknown because it was cut."""


@dataclass(slots=True)
class HeardTurn:
    """One turn of the caller, as the server reports it.

    begin: sample of the call at which the report arrived. end: reported sample of the end of speech.
    """

    item: str
    begin: int
    text: str = ""
    final: bool = False
    end: int | None = None


@dataclass(slots=True)
class Hold:
    """The agent paused at sample ``at`` of the call and went on at ``until``, None if it did not."""

    item: str
    at: int
    until: int | None = None


@dataclass(slots=True)
class HeardReply:
    """One response of the agent.

    created: sample of the call at which its response.created arrived. status: of response.done.
    heard_end: sample at which the last turn before it ended, by the server's speech_stopped; None if it had
        reported no end.
    cues: (samples of its audio before the text, text). parts: the server's latency budget in milliseconds.
    counts: other figures of the server's trace. models: the language models that wrote it, if they are
        several.
    """

    id: str
    created: int
    item: str = ""
    heard_end: int | None = None
    status: str = ""
    cues: list[tuple[int, str]] = field(default_factory=list)
    parts: list[tuple[str, float]] = field(default_factory=list)
    counts: dict[str, float] = field(default_factory=dict)
    models: list[str] = field(default_factory=list)
    cut: Cut | None = None

    @property
    def text(self) -> str:
        """The words that have arrived so far."""
        return "".join(text for _, text in self.cues)

    def write(self, text: str, received: int) -> None:
        """Add words that arrived after ``received`` samples of the reply."""
        if self.cues and self.cues[-1][0] == received:
            text = self.cues.pop()[1] + text
        self.cues.append((received, text))

    def heard(self, played: int, received: int) -> str:
        """Return the words in the first ``played`` of the reply's ``received`` samples.

        The words of a delta are spread over its audio by length in characters. The audio of the last delta
        may be incomplete; its length is estimated with ``CHARACTERS_PER_SECOND``.
        """
        words = []
        for place, (start, text) in enumerate(self.cues):
            end = self.cues[place + 1][0] if place + 1 < len(self.cues) else received
            if place + 1 == len(self.cues) and self.status != "completed":
                end = max(end, start + int(len(text) / CHARACTERS_PER_SECOND * CLIENT_RATE))
            if played >= end > start:
                words.append(text)
            elif played > start:
                reached = int((played - start) / (end - start) * len(text))
                words.append(text[:reached].rpartition(" ")[0])
        return "".join(words)
