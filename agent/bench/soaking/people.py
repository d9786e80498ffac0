"""The callers of a soak: they come, talk, interrupt, send garbage, hang up, vanish, and come again."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from rejoinder.agent.bench.soaking import guests
from rejoinder.agent.bench.soaking.lines import SPOKEN_WIRES, SoakLine
from rejoinder.agent.bench.soaking.spoken_call import (
    FramePipe,
    LineLost,
    PacketPipe,
    SpokenCall,
    open_socket,
    open_stream,
    speaking,
)
from rejoinder.agent.bench.soaking.tally import SoakTally
from rejoinder.agent.bench.soaking.utterances import Utterance
from rejoinder.agent.wires.phone.carrier import Frame

MOST_TURNS = 4
"""Most turns in one call."""
LONGEST_PATIENCE_SECONDS = 15.0
"""Longest wait for an answer, in seconds."""
LONGEST_LISTENING_SECONDS = 20.0
"""Longest time that a caller listens to one answer, in seconds."""
INTERRUPT_SHARE = 0.3
"""Share of answers that are interrupted."""
KEY_SHARE = 0.1
"""Share of turns after which a caller presses a key."""
GARBAGE_SHARE = 0.05
"""Share of turns before which a caller sends garbage."""
ENDS = {"hung up": 0.5, "vanished": 0.25, "went silent": 0.1, "came back": 0.15}
"""How a call ends, with its share. Where a call cannot be resumed, "came back" is another hang-up."""
SILENT_RANGE = (2.0, 10.0)
"""A caller that goes silent neither sends nor reads for this time, in seconds, before it vanishes."""
AWAY_RANGE = (0.2, 5.0)
"""A caller that comes back is away for this time, in seconds."""
RETRY_RANGE = (0.5, 2.0)
"""Rest after a lost or refused call, in seconds."""
GARBAGE: Sequence[Frame] = (
    "{",
    '{"type": "nonsense"}',
    '{"type": "input_audio_buffer.append", "audio": "%%%"}',
    '{"event": "media", "media": {"payload": "%%%"}}',
    '{"event": "mark"}',
    "[" * 2_000,
    "x" * 70_000,
    b"\x00",
    b"\xff" * 9_999,
    b"",
)
"""What no server expects."""


@dataclass(frozen=True, slots=True)
class SoakTarget:
    """A server under soak, and how its callers behave.

    port: of HTTP. audiosocket, wyoming: the other ports. frame_s: audio in one step of a
    microphone, in seconds. rest: range of the rest between two calls of a caller, in seconds.
    """

    port: int
    audiosocket: int
    wyoming: int
    said: Sequence[Utterance]
    frame_s: float
    rest: tuple[float, float]


async def be_a_caller(number: int, target: SoakTarget, tally: SoakTally, seed: int) -> None:
    """Call again and again, on all wires, until cancelled, which vanishes.

    number: of the caller. seed: of its choices.
    """
    chance, deck, calls = random.Random(f"{seed}/{number}"), list[str](), 0
    while True:
        if not deck:
            deck = chance.sample(sorted(VISITS), len(VISITS))
        wire, calls = deck.pop(), calls + 1
        tally.wires[wire] += 1
        rest = target.rest
        try:
            await VISITS[wire](wire, number * 1_000_000 + calls, target, tally, chance)
        except LineLost as error:
            tally.lost[f"{wire}: {error}"[:200]] += 1
            rest = RETRY_RANGE
        await asyncio.sleep(chance.uniform(*rest))


async def _spoken(
    wire: str, number: int, target: SoakTarget, tally: SoakTally, chance: random.Random
) -> None:
    line = SPOKEN_WIRES[wire](number)
    end = chance.choices([*ENDS], [*ENDS.values()])[0]
    place = await _one_socket(line, target, tally, chance, end, line.path)
    if end == "came back" and place:
        await asyncio.sleep(chance.uniform(*AWAY_RANGE))
        path = f"{line.path}&conversation_id={place[0]}&last_event_id={place[1]}"
        await _one_socket(line, target, tally, chance, "hung up", path)


async def _one_socket(
    line: SoakLine, target: SoakTarget, tally: SoakTally, chance: random.Random, end: str, path: str
) -> tuple[str, str] | None:
    """Talk over one connection; return where the call can be resumed, None where it cannot."""
    pipe = await _connected(line, target, path)
    call: SpokenCall | None = None
    place = None
    try:
        async with speaking(line, pipe, target.frame_s) as call:
            await _talk(call, target, tally, chance)
            place = call.place
            if end == "hung up" or (end == "came back" and not place):
                for frame in line.stop():
                    await pipe.send(frame)
        tally.counts[end] += 1
        if end == "went silent":
            await asyncio.sleep(chance.uniform(*SILENT_RANGE))
        elif end == "hung up":
            await pipe.close()
    except LineLost:
        if call is None or not call.garbled:
            raise  # else the server has hung up on garbage, as it may
        tally.counts["ended for garbage"] += 1
    finally:
        pipe.abort()
    return place


async def _talk(call: SpokenCall, target: SoakTarget, tally: SoakTally, chance: random.Random) -> None:
    await asyncio.sleep(chance.uniform(0.3, 1.5))
    for _ in range(chance.randint(1, MOST_TURNS)):
        if chance.random() < GARBAGE_SHARE:
            tally.counts["garbage"] += 1
            call.garbled = True
            await call.pipe.send(chance.choice(GARBAGE))
        counts = call.is_quiet
        call.say(chance.choice(target.said))
        latency = await call.answered(LONGEST_PATIENCE_SECONDS)
        tally.turn(latency, counts)
        if chance.random() < KEY_SHARE:
            for frame in call.line.digit(chance.choice("0123456789*#")):
                await call.pipe.send(frame)
        if latency is not None and chance.random() < INTERRUPT_SHARE:
            tally.counts["interrupted"] += 1
            await asyncio.sleep(chance.uniform(0.2, 1.5))
        else:
            await call.hear_out(LONGEST_LISTENING_SECONDS)


async def _connected(line: SoakLine, target: SoakTarget, path: str) -> FramePipe:
    if line.wire == "AudioSocket":
        return PacketPipe(*await open_stream(target.audiosocket))
    return await open_socket(f"ws://127.0.0.1:{target.port}{path}")


async def _at_home(
    wire: str, number: int, target: SoakTarget, tally: SoakTally, chance: random.Random
) -> None:
    await guests.ask_home(target.wyoming, chance.choice(target.said).pcm[16_000], tally.counts, chance)


async def _by_text(
    wire: str, number: int, target: SoakTarget, tally: SoakTally, chance: random.Random
) -> None:
    await guests.ask_in_writing(target.port, tally.counts, chance)


async def _watching(
    wire: str, number: int, target: SoakTarget, tally: SoakTally, chance: random.Random
) -> None:
    await guests.watch(target.port, tally.counts, chance)


Visit = Callable[[str, int, SoakTarget, SoakTally, random.Random], Awaitable[None]]
VISITS: dict[str, Visit] = {
    **dict.fromkeys(SPOKEN_WIRES, _spoken),
    "Wyoming": _at_home,
    "text": _by_text,
    "captions": _watching,
}
"""What a caller does on each wire."""
