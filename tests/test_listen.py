"""The stage that hears: the same, whether audio comes chunk by chunk or waits in heaps."""

from __future__ import annotations

import asyncio

import pytest
import speech

from rejoinder.models.scripted import ScriptedVad
from rejoinder.pipeline.audio import RATE, AudioChunk, joined
from rejoinder.pipeline.channel import Channel
from rejoinder.pipeline.echo import Echo
from rejoinder.pipeline.endpointer import Endpointer
from rejoinder.pipeline.events import FloorEvent, PartialTranscript
from rejoinder.pipeline.listen import TOGETHER, hear

SAID = (
    speech.chunk(speech.silence(0.3)),
    speech.chunk(speech.noise(0.5, 0.3)),
    speech.chunk(speech.silence(0.4)),
)


async def heard(heap: int, echo: bool) -> tuple[list[FloorEvent | PartialTranscript], list[AudioChunk]]:
    """Send so many chunks at a time, an empty one in between, and return what follows."""
    chunks = [*joined(SAID).slices(320)]
    chunks.insert(30, AudioChunk(b"", RATE, chunks[30].start))
    inp: Channel[AudioChunk] = Channel(len(chunks))
    out: Channel[AudioChunk] = Channel(len(chunks))
    events: list[FloorEvent | PartialTranscript] = []
    stage = asyncio.create_task(
        hear(inp, ScriptedVad().stream(), Endpointer(), events.append, out, Echo() if echo else None)
    )
    for place, chunk in enumerate(chunks):
        await inp.send(chunk)
        if place % heap == heap - 1:
            await asyncio.sleep(0)
    inp.close()
    await stage
    return events, [chunk async for chunk in out]


@pytest.mark.parametrize("echo", [False, True])
@pytest.mark.parametrize("heap", [2, TOGETHER, TOGETHER + 1, 1000])
def test_heaps_of_audio_are_heard_like_single_chunks(heap: int, echo: bool) -> None:
    one, many = asyncio.run(heard(1, echo)), asyncio.run(heard(heap, echo))
    assert [str(event) for event in one[0]] == [str(event) for event in many[0]]
    assert len(one[0]) == 2
    assert one[1] == many[1] and len(one[1]) == 61
