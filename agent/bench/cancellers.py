"""Compares echo cancellers in sample time, without a server: none, ours, and WebRTC's AEC3.

The agent's voice, a recording, goes through a room into the microphone. From time to time a caller speaks
over it. Each canceller gets the same audio, chunk by chunk, with the same play-out times as in a session.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import soxr
from rich.table import Table

from rejoinder.agent.bench.aec3 import Aec3Path
from rejoinder.agent.bench.callers.room import Room
from rejoinder.agent.bench.cases.recordings import Recording, choose
from rejoinder.agent.bench.echo import HISS, Place
from rejoinder.agent.bench.stt import error_rate
from rejoinder.agent.client.audio import CLIENT_RATE
from rejoinder.agent.simulate.player import MICROPHONE_FRAME, Player
from rejoinder.pipeline.audio.chunk import RATE, AudioChunk, Samples, to_pcm
from rejoinder.pipeline.audio.echo import Echo
from rejoinder.pipeline.audio.echo_path import ECHO_BLOCK, EchoPath
from rejoinder.pipeline.options import Models

NO_ECHO = "no echo"
"""The caller alone: what a perfect canceller would leave."""
AGENT_SET = "ljspeech"
"""Set of the agent's voice: one speaker."""
CALLER_SET = "librispeech_test_other"
"""Set of the callers: it has transcripts."""
AGENT_LEVEL = 0.1
"""RMS of the agent's voice as it is sent: -20 dBFS."""
CALLER_LEVEL = 0.05
"""RMS of the caller's voice at the microphone: -26 dBFS."""
LEAST_CALL_SECONDS = 20.0
"""Shortest call, in seconds."""
LEARNING_SECONDS = 1.5
"""Length of a call's beginning, which has its own figure, in seconds."""
APART_SECONDS = (2.0, 4.0)
"""Time between two utterances of the caller, from and to, in seconds."""
MOST_UTTERANCE_SECONDS = 6.0
"""Longest utterance of a caller, in seconds."""
UPLINK_SECONDS = 0.03
"""Time that the microphone's audio takes to arrive, in seconds."""
AHEAD_SECONDS = 0.2
"""Time between the planning of the agent's audio and its play-out, in seconds."""
VOICE = 0.5
"""Probability from which a window counts as speech."""
LEAST_WINDOWS = 5
"""Fewest successive windows of 32 ms that count as false speech."""
AUDIBLE_POWER = 1e-6
"""Power of the echo in a block from which it counts as audible: -60 dBFS."""


CANCELLERS: dict[str, Callable[[], EchoPath] | None] = {
    NO_ECHO: None,
    "none": None,
    "ours": EchoPath,
    "AEC3": Aec3Path,
}
"""The echo cancellers that the bench compares, by name; None for none."""


@dataclass(frozen=True, slots=True)
class CallerUtterance:
    """An utterance of the caller: its transcript, and its first and last sample in the call."""

    text: str
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class EchoScript:
    """One call: what plays, its echo, what the caller says, and hiss; float32 of shape (n,) at 16 kHz."""

    place: Place
    played: Samples
    echo: Samples
    caller: Samples
    hiss: Samples
    said: tuple[CallerUtterance, ...]


@dataclass(frozen=True, slots=True)
class Cancelled:
    """What one canceller made of a call.

    early_db, later_db: by how much less power there is while only the agent speaks, in the first
        ``LEARNING_SECONDS`` and later. false: stretches taken for speech while the caller is silent, for
        ``seconds``. texts: (said, recognised) for each utterance. onsets_ms: when voice activity finds each
        utterance, None for never. cost_ms: processor time for each second of audio.
    """

    canceller: str
    name: str
    level: float
    early_db: float
    later_db: float
    false: int
    seconds: float
    texts: tuple[tuple[str, str], ...]
    onsets_ms: tuple[float | None, ...]
    cost_ms: float


def scripts(folder: Path, where: Sequence[Place], seconds: float, seed: int) -> list[EchoScript]:
    """Return a call at each place with a room. seconds: of each call. Raises RecordingsMissing."""
    agent = choose(folder, [AGENT_SET], 200, seed)
    callers = [each for each in choose(folder, [CALLER_SET], 400, seed) if each.text]
    callers = [each for each in callers if len(each.load(RATE)) < MOST_UTTERANCE_SECONDS * RATE]
    rooms = [place for place in where if place.room]
    return [_script(place, agent, callers, seconds, Random(f"{seed} {n}")) for n, place in enumerate(rooms)]


def _script(
    place: Place, agent: Sequence[Recording], callers: Sequence[Recording], seconds: float, draw: Random
) -> EchoScript:
    assert place.room is not None
    count = int(max(seconds, LEAST_CALL_SECONDS) * RATE)
    pieces: list[Samples] = []
    while sum(len(piece) for piece in pieces) < count:
        pieces += [draw.choice(agent).load(RATE), np.zeros(int(draw.uniform(0.1, 0.5) * RATE), np.float32)]
    played = _scaled(np.concatenate(pieces)[:count], AGENT_LEVEL)
    caller, said, at = np.zeros(count, np.float32), [], int(draw.uniform(*APART_SECONDS) * RATE)
    while True:
        chosen = draw.choice(callers)
        audio = _scaled(chosen.load(RATE), CALLER_LEVEL)
        if at + len(audio) + RATE > count:
            break
        caller[at : at + len(audio)] = audio
        said.append(CallerUtterance(chosen.text or "", at, at + len(audio)))
        at += len(audio) + int(draw.uniform(*APART_SECONDS) * RATE)
    hiss = np.random.default_rng(draw.randrange(2**32)).normal(0.0, HISS, count).astype(np.float32)
    return EchoScript(place, played, _echo(place.room, played), caller, hiss, tuple(said))


def _echo(room: Room, played: Samples) -> Samples:
    """Return what the microphone records of the played audio, at 16 kHz; the room is at the wire's rate."""
    player = Player()
    player.play("", soxr.resample(played, RATE, CLIENT_RATE), 0)
    frames = [room.echo(player, begin) for begin in range(0, player.end, MICROPHONE_FRAME)]
    echo: Samples = soxr.resample(np.concatenate(frames), CLIENT_RATE, RATE)[: len(played)]
    return np.pad(echo, (0, len(played) - len(echo)))


async def measure(script: EchoScript, canceller: str, models: Models) -> Cancelled:
    """Pass a call through a canceller. Raises PipelineError. Cancelling stops it."""
    microphone = script.caller + script.hiss
    if canceller != NO_ECHO:
        microphone += script.echo
    began = time.thread_time()
    clean = cancel(CANCELLERS[canceller], script.played, microphone)
    cost = time.thread_time() - began
    stream, chunk = models.vad.stream(), AudioChunk(to_pcm(clean), RATE)
    voice = np.array(
        [probability for each in chunk.slices(ECHO_BLOCK) for _, probability in stream.feed(each)]
    )
    alone = np.ones(len(clean), bool)
    texts, onsets = [], []
    for each in script.said:
        alone[max(0, each.begin - RATE // 2) : each.end + RATE // 2] = False
        recogniser = models.stt.stream()
        recogniser.feed(
            AudioChunk(to_pcm(clean[max(0, each.begin - RATE // 5) : each.end + RATE // 5]), RATE)
        )
        texts.append((each.text, (await recogniser.transcribe(is_final=True)).text))
        found = np.flatnonzero(voice[each.begin // ECHO_BLOCK : each.end // ECHO_BLOCK] > VOICE)
        onsets.append(1000.0 * int(found[0]) * ECHO_BLOCK / RATE if len(found) else None)
    loud = (script.echo[: len(voice) * ECHO_BLOCK].reshape(-1, ECHO_BLOCK) ** 2).mean(1) > AUDIBLE_POWER
    audible = alone & np.pad(loud.repeat(ECHO_BLOCK), (0, len(clean) - len(loud) * ECHO_BLOCK))
    learnt = int(LEARNING_SECONDS * RATE) + int(np.argmax(audible))

    def reduction(part: slice) -> float:
        """Return by how many decibels the audible echo is reduced in a part of the call."""
        before, after = (np.mean(audio[part][audible[part]] ** 2) for audio in (microphone, clean))
        return 10.0 * float(np.log10((before + 1e-12) / (after + 1e-12)))

    return Cancelled(
        canceller,
        script.place.name,
        script.place.level or 0.0,
        reduction(slice(learnt)),
        reduction(slice(learnt, None)),
        _stretches((voice > VOICE) & alone[: len(voice) * ECHO_BLOCK : ECHO_BLOCK]),
        float(alone.sum() / RATE),
        tuple(texts),
        tuple(onsets),
        1000.0 * cost * RATE / len(clean),
    )


def cancel(path: Callable[[], EchoPath] | None, played: Samples, microphone: Samples) -> Samples:
    """Return the microphone's audio after ``Echo`` with this path; two float32 of shape (n,) at 16 kHz."""
    if path is None:
        return microphone
    echo, sent = Echo(), 0
    echo.path = path()
    clean = [echo.hear(AudioChunk(b"", RATE), UPLINK_SECONDS)]
    for chunk in AudioChunk(to_pcm(microphone), RATE).slices(RATE // 50):
        now = chunk.end / RATE + UPLINK_SECONDS
        while sent < len(played) and sent / RATE < now + AHEAD_SECONDS:
            piece = played[sent : sent + RATE // 25]
            echo.play(AudioChunk(to_pcm(piece), RATE), UPLINK_SECONDS + sent / RATE)
            sent += len(piece)
        clean.append(echo.hear(chunk, now))
    out = np.concatenate([each.samples() for each in clean])
    return np.concatenate((out, np.zeros(len(microphone) - len(out), np.float32)))


def _scaled(audio: Samples, level: float) -> Samples:
    scaled: Samples = (audio * (level / np.sqrt(np.mean(audio**2)))).astype(np.float32)
    return scaled


def _stretches(windows: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> int:
    """Return the number of runs of at least ``LEAST_WINDOWS``."""
    edges = np.flatnonzero(np.diff(np.concatenate(([False], windows, [False]))))
    return int((edges[1::2] - edges[::2] >= LEAST_WINDOWS).sum())


def table(found: Sequence[Cancelled]) -> Table:
    """Return the table for the terminal: a row for each canceller and level, and one for all levels."""
    minutes = sum(each.seconds for each in found) / 60 / len(CANCELLERS)
    title = f"Echo cancellers; the caller is silent for {minutes:.1f} min"
    shown = Table(title=title, title_justify="left")
    for column in ("", "echo", "first dB", "later dB", "false", "WER", "missed", "found ms", "CPU ms/s"):
        shown.add_column(column, justify="right" if column else "left")
    for canceller in CANCELLERS:
        shown.add_section()
        mine = [each for each in found if each.canceller == canceller]
        for level in sorted({each.level for each in mine}, reverse=True):
            _add(shown, f"{level:.0f} dB", [each for each in mine if each.level == level])
        _add(shown, "all", mine)
    return shown


def _add(shown: Table, name: str, found: Sequence[Cancelled]) -> None:
    onsets = [onset for each in found for onset in each.onsets_ms]
    heard = [onset for onset in onsets if onset is not None]
    said, recognised = zip(*(text for each in found for text in each.texts), strict=True)
    shown.add_row(
        found[0].canceller,
        name,
        f"{np.mean([each.early_db for each in found]):.0f}",
        f"{np.mean([each.later_db for each in found]):.0f}",
        str(sum(each.false for each in found)),
        f"{error_rate()(said, recognised):.1%}",
        f"{onsets.count(None)} of {len(onsets)}",
        f"{np.median(heard):.0f}" if heard else "",
        f"{np.mean([each.cost_ms for each in found]):.1f}",
    )
