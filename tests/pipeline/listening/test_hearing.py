"""The stage that detects speech gives the same events for single chunks of audio and for bursts."""

from __future__ import annotations

import asyncio

import pytest
from support import speech

from rejoinder.models.scripted import ScriptedVad
from rejoinder.pipeline.audio.chunk import RATE, AudioChunk, joined
from rejoinder.pipeline.audio.echo import Echo
from rejoinder.pipeline.channel import Channel
from rejoinder.pipeline.events import (
    EagerEndOfTurn,
    EndOfTurn,
    FloorEvent,
    PartialTranscript,
    PauseStarted,
    SpeechStarted,
    Transcribed,
)
from rejoinder.pipeline.interfaces import Transcript
from rejoinder.pipeline.listening.hearing import MOST_CHUNKS, hear
from rejoinder.pipeline.options import Endpointing
from rejoinder.pipeline.turns.endpointer import Endpointer

SAID = (
    speech.chunk(speech.silence(0.3)),
    speech.chunk(speech.noise(0.5, 0.3)),
    speech.chunk(speech.silence(0.4)),
)


Told = list[tuple[int, FloorEvent | PartialTranscript]]
"""Each event, and the number of samples received by then."""


async def heard(heap: int, echo: bool) -> tuple[Told, list[AudioChunk]]:
    """Send ``heap`` chunks at a time, with an empty one in between; return the events and the audio."""
    floor = Endpointer(Endpointing(min_wait_ms=150, max_wait_ms=150))

    def told(event: FloorEvent | PartialTranscript) -> None:
        events.append((floor.reached, event))
        if isinstance(event, PauseStarted):
            for each in floor.transcript(Transcript("hello", True, event.at)):
                told(each)

    chunks = [*joined(SAID).slices(320)]
    chunks.insert(30, AudioChunk(b"", RATE, chunks[30].start))
    inp: Channel[AudioChunk] = Channel(len(chunks))
    out: Channel[AudioChunk] = Channel(len(chunks))
    events: Told = []
    stage = asyncio.create_task(hear(inp, ScriptedVad().stream(), floor, told, out, Echo() if echo else None))
    for place, chunk in enumerate(chunks):
        await inp.send(chunk)
        if place % heap == heap - 1:
            await asyncio.sleep(0)
    inp.close()
    await stage
    return events, [chunk async for chunk in out]


@pytest.mark.parametrize("echo", [False, True])
@pytest.mark.parametrize("heap", [2, MOST_CHUNKS, MOST_CHUNKS + 1, 1000])
def test_audio_in_bursts_gives_the_same_events_as_single_chunks(heap: int, echo: bool) -> None:
    one, many = asyncio.run(heard(1, echo)), asyncio.run(heard(heap, echo))
    assert one[0] == many[0]
    assert [type(event) for _, event in one[0]] == [
        SpeechStarted,
        PauseStarted,
        Transcribed,
        EagerEndOfTurn,
        EndOfTurn,
    ]
    (pause, _), (end, _) = one[0][1], one[0][-1]
    assert end - pause == RATE * 121 // 1000  # 153 ms of silence, of which one window was known before
    whole = joined(SAID)
    for pieces in (one[1], many[1]):
        assert [piece.start for piece in pieces[1:]] == [piece.end for piece in pieces[:-1]]
        assert joined(pieces) == whole
        spoken = [piece for piece in pieces if RATE // 3 < piece.start < pause]
        assert {len(piece) for piece in spoken} <= {0, 320}, "words are looked for piece by piece"


def test_silence_is_passed_on_in_few_pieces_and_none_of_it_is_lost() -> None:
    async def listen() -> list[AudioChunk]:
        inp: Channel[AudioChunk] = Channel(1000)
        out: Channel[AudioChunk] = Channel(1000)
        for chunk in speech.chunk(speech.noise(4.0, 0.0005)).slices(320):
            inp.send_nowait(chunk)
        inp.close()
        await hear(inp, ScriptedVad().stream(), Endpointer(), lambda event: None, out)
        return [chunk async for chunk in out]

    pieces = asyncio.run(listen())
    assert joined(pieces) == speech.chunk(speech.noise(4.0, 0.0005))
    assert len(pieces) <= 200 // MOST_CHUNKS
