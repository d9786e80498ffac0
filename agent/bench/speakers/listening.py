"""Runs scenes through voice activity detection and the floor, as a session does, faster than real time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from rejoinder.agent.bench.speakers.scenes import Scene, VoicePlace
from rejoinder.pipeline.audio.chunk import RATE, AudioChunk, to_pcm
from rejoinder.pipeline.channel import Channel
from rejoinder.pipeline.events import (
    EndOfTurn,
    FloorEvent,
    OverlapStarted,
    PartialTranscript,
    SpeechStarted,
)
from rejoinder.pipeline.interfaces import Transcript, Vad
from rejoinder.pipeline.listening.hearing import hear
from rejoinder.pipeline.options import Endpointing, Options, Speakers
from rejoinder.pipeline.turns.endpointer import Endpointer

WORDS = "What time is it now?"
"""The transcript of each turn. The bench asks whose voice counts, not which words it says."""
BURST_SAMPLES = RATE * 8 // 100
"""Samples in one chunk: larger ones than a call's take a third of the time."""
EARLY = RATE // 2
"""An onset or an end this long before the begin of a voice may belong to it, in samples."""


@dataclass(frozen=True, slots=True)
class VoiceOutcome:
    """What one voice did.

    took: whether it became a turn. noticed_ms: when it took the floor or paused the agent, after its begin,
    None if it did not. ended_ms: when the turn before it ended, after its begin.
    """

    scene: str
    place: VoicePlace
    is_caller: bool
    took: bool
    noticed_ms: float | None
    ended_ms: float | None


class KnownVad:
    """A voice activity detector's stream that repeats windows judged before, for another setting."""

    def __init__(self, windows: Sequence[tuple[int, float]]) -> None:
        self._windows = windows
        self._place = 0

    def feed(self, chunk: AudioChunk) -> Sequence[tuple[int, float]]:
        """Return the windows that end in the chunk."""
        first = self._place
        while self._place < len(self._windows) and self._windows[self._place][0] <= chunk.end:
            self._place += 1
        return self._windows[first : self._place]


def windows_of(scene: Scene, vad: Vad) -> list[tuple[int, float]]:
    """Return the windows of a scene as the detector judges them."""
    stream = vad.stream()
    return [window for chunk in _chunks(scene) for window in stream.feed(chunk)]


class _Listener:
    """The floor of one scene, and when its events come, in samples."""

    def __init__(self, scene: Scene, speakers: Speakers) -> None:
        self.scene = scene
        self.floor = Endpointer()
        self.floor.configure(Options(endpointing=Endpointing(speakers=speakers)))
        self.starts: list[tuple[int, int]] = []
        self.noticed: list[int] = []
        self.ends: list[int] = []

    def react(self, event: FloorEvent | PartialTranscript) -> None:
        """Take an event. The agent answers each turn; in most scenes it has finished when the voice comes."""
        match event:
            case SpeechStarted(at):
                self.starts.append((at, self.floor.now))
                self.noticed.append(self.floor.now)
            case OverlapStarted():
                self.noticed.append(self.floor.now)
            case EndOfTurn():
                self.ends.append(self.floor.reached)
                self.floor.agent.started()
                if self.scene.place is not VoicePlace.OVER_AGENT:
                    self.floor.agent.finished()

    async def transcribe(self, audio: Channel[AudioChunk]) -> None:
        """Give each pause its words, in the place of the recogniser."""
        transcribed: int | None = None
        async for _ in audio:
            pause = self.floor.pause
            if pause is not None and pause != transcribed:
                for event in self.floor.transcript(Transcript(WORDS, True, pause)):
                    self.react(event)
            transcribed = pause


async def listen(scene: Scene, windows: Sequence[tuple[int, float]], speakers: Speakers) -> VoiceOutcome:
    """Run one scene with one setting. Cancelling ends it."""
    listener = _Listener(scene, speakers)
    inp: Channel[AudioChunk] = Channel(1, "heard")
    out: Channel[AudioChunk] = Channel(1, "transcribe")
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(hear(inp, KnownVad(windows), listener.floor, listener.react, out))
        tasks.create_task(listener.transcribe(out))
        for chunk in _chunks(scene):
            await inp.send(chunk)
        inp.close()
    begin = scene.begin
    late = [at for onset, at in listener.starts if onset >= begin - EARLY and at > begin]
    noticed = [at for at in listener.noticed if at > begin]
    ended = [at for at in listener.ends if at > begin - EARLY]
    if scene.place is VoicePlace.AFTER_CALLER:
        took = not ended or ended[0] > scene.end  # the turn went on while the voice did
        return VoiceOutcome(scene.kind, scene.place, False, took, None, _ms(ended, begin))
    return VoiceOutcome(scene.kind, scene.place, scene.is_caller, bool(late), _ms(noticed, begin), None)


def _chunks(scene: Scene) -> list[AudioChunk]:
    return list(AudioChunk(to_pcm(scene.audio), RATE).slices(BURST_SAMPLES))


def _ms(places: Sequence[int], begin: int) -> float | None:
    return (places[0] - begin) * 1000 / RATE if places else None
