"""What a caller knows of the turns of a call: its own as the server hears them, and the agent's replies."""

from __future__ import annotations

from dataclasses import dataclass, field

from rejoinder.agent.client.player import RATE, Cut

CHARACTERS_PER_SECOND = 15.0
"""How fast speech is, where the length of a clause's audio is not known because it was cut."""


@dataclass(slots=True)
class HeardTurn:
    """What the server makes of one turn of the caller.

    begin: sample of the call at which the server told of it. end: that at which, it says, the speech ended.
    """

    item: str
    begin: int
    text: str = ""
    final: bool = False
    end: int | None = None


@dataclass(slots=True)
class Hold:
    """The agent fell silent at sample ``at`` of the call, and went on at ``until``; None if it did not."""

    item: str
    at: int
    until: int | None = None


@dataclass(slots=True)
class Reply:
    """One response of the agent.

    created: sample of the call at which its response.created arrived. status: that of response.done.
    heard_end: sample at which, the server says, the speech ended that it answers; None if it says nothing.
    cues: (samples of its audio that had come before, text). parts: the server's own budget in milliseconds.
    counts: what else the server told with it.
    """

    id: str
    created: int
    item: str = ""
    heard_end: int | None = None
    status: str = ""
    cues: list[tuple[int, str]] = field(default_factory=list)
    parts: list[tuple[str, float]] = field(default_factory=list)
    counts: dict[str, float] = field(default_factory=dict)
    cut: Cut | None = None

    @property
    def text(self) -> str:
        """The words that have arrived."""
        return "".join(text for _, text in self.cues)

    def write(self, text: str, received: int) -> None:
        """Add words that came when ``received`` samples of the reply had come."""
        if self.cues and self.cues[-1][0] == received:
            text = self.cues.pop()[1] + text
        self.cues.append((received, text))

    def heard(self, played: int, received: int) -> str:
        """Return the words in the first ``played`` samples of the reply, of which ``received`` have come.

        Words are spread over the audio of their delta by length in characters. A last delta whose audio may
        be incomplete is taken to last as long as such text does at ``CHARACTERS_PER_SECOND``.
        """
        words = []
        for place, (start, text) in enumerate(self.cues):
            end = self.cues[place + 1][0] if place + 1 < len(self.cues) else received
            if place + 1 == len(self.cues) and self.status != "completed":
                end = max(end, start + int(len(text) / CHARACTERS_PER_SECOND * RATE))
            if played >= end > start:
                words.append(text)
            elif played > start:
                reached = int((played - start) / (end - start) * len(text))
                words.append(text[:reached].rpartition(" ")[0])
        return "".join(words)
