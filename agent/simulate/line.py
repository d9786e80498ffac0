"""The network line between a simulated caller and the agent, and the caller's playback."""

from __future__ import annotations

import random
from dataclasses import dataclass

from rejoinder.agent.client.audio import CLIENT_RATE
from rejoinder.agent.simulate.player import Cut, Player
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

WORD_TOLERANCE = CLIENT_RATE // 1000
"""Samples that may be missing at the end of a heard word, 1 ms: the lengths of slices are rounded."""


@dataclass(frozen=True, slots=True)
class Line:
    """A network such as TCP: each message arrives, in order and late.

    delay: seconds that each message takes. jitter: largest additional delay in seconds, drawn uniformly.
    seed: of the drawn delays.
    """

    delay: float = 0.0
    jitter: float = 0.0
    seed: int = 0

    @property
    def latest(self) -> float:
        """The largest delay of a message, in seconds."""
        return self.delay + self.jitter

    def way(self, name: str) -> Way:
        """Return one direction of the line. name: makes its delays independent of the other directions."""
        return Way(self, random.Random(f"{name} {self.seed}"))


class Way:
    """One direction of a line."""

    def __init__(self, line: Line, chance: random.Random) -> None:
        self._line = line
        self._chance = chance
        self._last = 0.0

    def arrival(self, sent: float) -> float:
        """Return the arrival of a message that is sent at a loop time, never before an earlier message."""
        late = self._line.delay + self._line.jitter * self._chance.random()
        self._last = max(self._last, sent + late)
        return self._last


class SimulatedPlayback:
    """The playback of a client without a buffer.

    holds: whether it pauses its audio on OverlapStarted. yields: whether it drops its audio on SpeechStarted,
        as clients do if the agent can be interrupted.

    Times are loop times in seconds. Word times follow the scripted voices, which say all characters at the
    same speed.
    """

    def __init__(self, holds: bool, yields: bool) -> None:
        self._player = Player()
        self._holds = holds
        self.yields = yields
        self._clauses: dict[int, list[tuple[int, str]]] = {}  # text, and where its audio begins in the reply

    def take(self, event: Event, at: float) -> Cut | None:
        """Handle an event that arrives at loop time ``at``. Return the cut that it causes, if any."""
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
            case SpeechStarted() if self.yields:
                return self._player.flush(now)
            case ReplyDone(status="cancelled"):
                return self._player.flush(now)
        return None

    def playing(self, at: float) -> bool:
        """Return whether the agent's audio plays."""
        return self._player.playing(_samples(at))

    def seconds(self, at: float) -> float:
        """Return the total seconds of the agent's audio that have been played."""
        return sum(self.seconds_of(turn, at) for turn in self._clauses)

    def seconds_of(self, turn: int, at: float) -> float:
        """Return the seconds of a reply that have been played."""
        return self._player.played(str(turn), _samples(at)) / CLIENT_RATE

    def first(self, turn: int) -> float | None:
        """Return the loop time at which a reply's words were first audible, None if never.

        A filler before them does not count.
        """
        begin = self._clauses.get(turn, [(0, "")])[0][0]
        first = self._player.first_audible(str(turn), begin)
        return None if first is None else first / CLIENT_RATE

    def turns(self) -> list[int]:
        """Return the replies that sent words, in order."""
        return list(self._clauses)

    def text(self, turn: int, at: float, more: int = WORD_TOLERANCE) -> str:
        """Return the words of a reply that have been played completely, up to ``more`` missing samples."""
        played = self._player.played(str(turn), _samples(at)) + more
        words = []
        for begin, text in self._clauses.get(turn, ()):
            position = 0
            for word in text.split():
                position += len(word)
                if begin + position * SECONDS_PER_CHARACTER * CLIENT_RATE <= played:
                    words.append(word)
                position += 1
        return " ".join(words)


def _samples(at: float) -> int:
    return round(at * CLIENT_RATE)
