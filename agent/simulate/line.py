"""The line between a simulated caller and the agent, and what the caller hears at the end of it."""

from __future__ import annotations

import random
from dataclasses import dataclass

from rejoinder.agent.client.player import RATE, Cut, Player
from rejoinder.models.scripted import SECONDS_PER_CHARACTER
from rejoinder.pipeline import (
    Event,
    OverlapEnded,
    OverlapStarted,
    ReplyAudio,
    ReplyDone,
    ReplyText,
    SpeechStarted,
)

CLOSE = RATE // 1000
"""A word is heard when less than a millisecond of it is missing: the lengths of slices are rounded."""


@dataclass(frozen=True, slots=True)
class Line:
    """A network without loss, as TCP is: everything arrives, in order, and late.

    delay: seconds that each message takes. jitter: seconds that it takes longer at most, drawn evenly.
    seed: which delays are drawn.
    """

    delay: float = 0.0
    jitter: float = 0.0
    seed: int = 0

    @property
    def latest(self) -> float:
        """Seconds that a message takes at most."""
        return self.delay + self.jitter

    def way(self, name: str) -> Way:
        """Return one direction of the line."""
        return Way(self, random.Random(f"{name} {self.seed}"))


class Way:
    """One direction of a line."""

    def __init__(self, line: Line, chance: random.Random) -> None:
        self._line = line
        self._chance = chance
        self._last = 0.0

    def arrival(self, sent: float) -> float:
        """Return when what is sent at a loop time arrives: never before what was sent earlier."""
        late = self._line.delay + self._line.jitter * self._chance.random()
        self._last = max(self._last, sent + late)
        return self._last


class Ear:
    """What a client plays that adds no buffer of its own.

    holds: whether it holds its audio while the agent is in doubt. yields: whether it cuts at SpeechStarted,
        as clients of an agent do that can be interrupted.

    Times are loop times in seconds. The words are those of scripted voices, which say all characters equally
    fast.
    """

    def __init__(self, holds: bool, yields: bool) -> None:
        self._player = Player()
        self._holds = holds
        self._yields = yields
        self._clauses: dict[int, list[tuple[int, str]]] = {}  # text, and where its audio begins in the reply

    def take(self, event: Event, at: float) -> Cut | None:
        """Take an event that arrives now; return what was thrown away because of it."""
        now = _samples(at)
        match event:
            case ReplyText(turn, text):
                self._clauses.setdefault(turn, []).append((self._player.received(str(turn)), text))
            case ReplyAudio(turn, chunk):
                self._player.play(str(turn), chunk.samples(), now)
            case OverlapStarted() if self._holds:
                self._player.hold(now)
            case OverlapEnded():
                self._player.release(now)
            case SpeechStarted() if self._yields:
                return self._player.flush(now)
            case ReplyDone(status="cancelled"):
                return self._player.flush(now)
        return None

    def playing(self, at: float) -> bool:
        """Tell whether the agent can be heard."""
        return self._player.playing(_samples(at))

    def seconds(self, at: float) -> float:
        """Return how much of the agent has been heard in all."""
        return sum(self.seconds_of(turn, at) for turn in self._clauses)

    def seconds_of(self, turn: int, at: float) -> float:
        """Return how much of a reply has been heard."""
        return self._player.played(str(turn), _samples(at)) / RATE

    def first(self, turn: int) -> float | None:
        """Return when a reply was first heard, None for never."""
        first = self._player.first_audible(str(turn))
        return None if first is None else first / RATE

    def turns(self) -> list[int]:
        """Return the replies of which words came, in order."""
        return list(self._clauses)

    def text(self, turn: int, at: float, more: int = CLOSE) -> str:
        """Return the words of a reply that have been heard whole, or all but for ``more`` samples."""
        played = self._player.played(str(turn), _samples(at)) + more
        words = []
        for begin, text in self._clauses.get(turn, ()):
            position = 0
            for word in text.split():
                position += len(word)
                if begin + position * SECONDS_PER_CHARACTER * RATE <= played:
                    words.append(word)
                position += 1
        return " ".join(words)


def _samples(at: float) -> int:
    return round(at * RATE)
