"""The script of a call: what its caller says, and when. It depends on the seed only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, auto
from pathlib import Path
from random import Random

from rejoinder.agent.bench.cases.levels import at_level
from rejoinder.agent.bench.cases.overlap import BACKCHANNEL
from rejoinder.agent.bench.cases.recordings import (
    Recording,
    RecordingsMissing,
    background,
    read_set,
    speech_begin,
    speech_end,
)
from rejoinder.agent.bench.interaction.definitions import TIC, TURN
from rejoinder.agent.bench.interaction.sounds import MEETING, MUFFLED, TELEVISION, CallerSound
from rejoinder.agent.client.audio import CLIENT_RATE
from rejoinder.pipeline.audio.chunk import Samples

SPEAKER_SETS = ("speechocean762_adult", "speechocean762_more", "an4", "an4_more")
"""Sets of recordings with several utterances of each speaker. A caller has one voice."""
TURN_LENGTH_SECONDS = (1.2, 6.0)
"""Range of the length of a turn."""
TURNS_OF_A_CALL = 6
"""Recordings of the caller that a call needs: four turns and two interruptions."""
BEFORE_SOUND_SECONDS = (0.8, 1.6)
"""Range of the silence before a turn, and before a sound in silence."""
INTO_SECONDS = (1.2, 2.2)
"""Range of undisturbed speech of the agent before a sound over it."""
MARGIN_SECONDS = 0.05
"""Length of a recording that is kept before its speech."""


class SayWhen(Enum):
    """When a caller makes a sound: while neither speaks, or over the agent."""

    IN_SILENCE = auto()
    OVER_AGENT = auto()


@dataclass(frozen=True, slots=True)
class ScriptedSound:
    """A sound, when to make it, and the seconds of silence or of the agent's speech to wait for before it."""

    sound: CallerSound
    when: SayWhen
    after: float


@dataclass(frozen=True, slots=True)
class CallScript:
    """What a caller says, in order. background: the noise of the line, float32 of shape (n,) at 24 kHz."""

    speaker: str
    sounds: Sequence[ScriptedSound]
    background: Samples


def scripts(folder: Path, sounds: Sequence[CallerSound], rounds: int, seed: int) -> list[CallScript]:
    """Return the scripts of ``rounds`` calls, each by another speaker. Raises RecordingsMissing."""
    draw = Random(seed)
    by_speaker: dict[str, list[Recording]] = {}
    for name in SPEAKER_SETS:
        for recording in read_set(folder, name):
            if TURN_LENGTH_SECONDS[0] <= recording.seconds <= TURN_LENGTH_SECONDS[1]:
                by_speaker.setdefault(recording.speaker, []).append(recording)
    speakers = sorted(name for name, said in by_speaker.items() if len(said) >= TURNS_OF_A_CALL)
    if not speakers:
        raise RecordingsMissing(f"no speaker in {', '.join(SPEAKER_SETS)} has {TURNS_OF_A_CALL} turns")
    draw.shuffle(speakers)
    decks = {
        wanted: _Deck([each for each in sounds if wanted in (each.category, each.kind)], draw)
        for wanted in (BACKCHANNEL, TIC, MUFFLED, MEETING, TELEVISION)
    }
    return [
        _script(
            speakers[number % len(speakers)],
            by_speaker[speakers[number % len(speakers)]],
            decks,
            number,
            draw,
        )
        for number in range(rounds)
    ]


class _Deck:
    """Sounds in random order; none comes again before all others did."""

    def __init__(self, sounds: Sequence[CallerSound], draw: Random) -> None:
        self._sounds, self._draw = list(sounds), draw
        self._left: list[CallerSound] = []

    def take(self) -> CallerSound:
        if not self._left:
            self._left = list(self._sounds)
            self._draw.shuffle(self._left)
        return self._left.pop()


def _script(
    speaker: str, recordings: Sequence[Recording], decks: dict[str, _Deck], number: int, draw: Random
) -> CallScript:
    chosen = draw.sample(list(recordings), TURNS_OF_A_CALL)
    said = [_turn(recording) for recording in chosen]
    # Rooms alternate: each call has one piece over the agent, and one in silence.
    room, other = (MEETING, TELEVISION) if number % 2 else (TELEVISION, MEETING)
    plan = [
        *_turn_and(said[0], over=[decks[BACKCHANNEL].take(), decks[TIC].take()], behind=decks[TIC].take()),
        *_turn_and(said[1], over=[decks[MUFFLED].take(), said[2]], behind=None),
        *_over([decks[BACKCHANNEL].take()]),
        (decks[MUFFLED].take(), SayWhen.IN_SILENCE),
        *_turn_and(said[3], over=[decks[room].take(), decks[BACKCHANNEL].take()], behind=decks[other].take()),
        *_turn_and(said[4], over=[decks[TIC].take(), said[5]], behind=decks[TIC].take()),
    ]
    waits = {SayWhen.OVER_AGENT: INTO_SECONDS, SayWhen.IN_SILENCE: BEFORE_SOUND_SECONDS}
    script = [ScriptedSound(sound, when, draw.uniform(*waits[when])) for sound, when in plan]
    noise = background(at_level(chosen[0].load(CLIENT_RATE)), CLIENT_RATE, 10.0, number)
    return CallScript(speaker, script, noise)


def _turn_and(
    turn: CallerSound, over: Sequence[CallerSound], behind: CallerSound | None
) -> list[tuple[CallerSound, SayWhen]]:
    after = [(behind, SayWhen.IN_SILENCE)] if behind is not None else []
    return [(turn, SayWhen.IN_SILENCE), *_over(over), *after]


def _over(sounds: Sequence[CallerSound]) -> list[tuple[CallerSound, SayWhen]]:
    return [(sound, SayWhen.OVER_AGENT) for sound in sounds]


def _turn(recording: Recording) -> CallerSound:
    audio = recording.load(CLIENT_RATE)
    begin = max(0, speech_begin(audio, CLIENT_RATE) - int(MARGIN_SECONDS * CLIENT_RATE))
    spoken = at_level(audio[begin : speech_end(audio, CLIENT_RATE)])
    return CallerSound(TURN, TURN, f"{recording.set}/{recording.path.name}", spoken)
