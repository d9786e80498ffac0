"""The first listening stage of a session: it finds speech in the incoming audio."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import chain

from rejoinder.pipeline.audio.chunk import RATE, AudioChunk, joined
from rejoinder.pipeline.audio.echo import Echo
from rejoinder.pipeline.audio.window_power import WindowPower
from rejoinder.pipeline.channel import Channel
from rejoinder.pipeline.errors import asking
from rejoinder.pipeline.events import FloorEvent, OverlapStarted, PartialTranscript, SpeechStarted
from rejoinder.pipeline.interfaces import SharedVadStream, VadStream
from rejoinder.pipeline.turns.caller_voice import Window
from rejoinder.pipeline.turns.endpointer import Endpointer
from rejoinder.pipeline.turns.floor import Floor

PAUSE_STEP = RATE // 200
"""Interval between two checks of a pause, in samples."""
MOST_CHUNKS = 7
"""Most waiting chunks in one call of the voice activity detector. A call for each chunk costs twice as
much."""
MOST_SILENT_BATCHES = 8
"""Most silent batches held before they are forwarded: silence changes no decision while the line is idle."""

React = Callable[[FloorEvent | PartialTranscript], None]
"""A function that takes the events."""


async def hear(
    inp: Channel[AudioChunk],
    vad: VadStream,
    floor: Endpointer,
    react: React,
    out: Channel[AudioChunk],
    echo: Echo | None = None,
) -> None:
    """Detect speech in the incoming audio, update the floor, and pass the audio on until ``inp`` ends.

    It waits for audio, for room in ``out``, and for a shared voice activity detector, which judges the audio
    of all sessions in one run. echo: removes the agent's own voice first; None to skip that.
    Cancelling drops the audio that was not passed on yet.
    """
    loop = asyncio.get_running_loop()
    silent: list[AudioChunk] = []
    power = WindowPower()
    shared = vad if isinstance(vad, SharedVadStream) else None
    async for first in inp:
        chunks = [first, *inp.receive_nowait(MOST_CHUNKS - 1)]
        if echo:
            chunks = [echo.hear(chunk, loop.time()) for chunk in chunks]
        batch = joined(chunks)
        with asking("voice activity detection"):
            windows = await shared.feed_together(batch) if shared else vad.feed(batch)
        power.feed(batch)
        judged = (Window(end, probability, power.until(end)) for end, probability in windows)
        for window in chain.from_iterable(map(floor.judge, judged)):
            extend_pause(floor, window.end - 1, react)
            for event in floor.vad(window.end, window.probability):
                if echo and isinstance(event, OverlapStarted | SpeechStarted):
                    floor.agent.may_echo(echo.saying(event.at), echo.path.learnt)
                react(event)
        if not floor.caller.undecided:
            extend_pause(floor, batch.end, react)
        if floor.idle and len(silent) < MOST_SILENT_BATCHES:
            silent.append(batch)
            continue
        for chunk in [joined(silent), *chunks] if silent else chunks:
            await out.send(chunk)
        silent = []
    if silent:
        await out.send(joined(silent))
    out.close()


def extend_pause(floor: Endpointer, end: int, react: React) -> None:
    """Extend a pause to sample ``end`` in fixed steps, which do not depend on the size of the chunks."""
    if floor.floor is Floor.PAUSE:
        for sample in range(floor.reached + PAUSE_STEP, end + 1, PAUSE_STEP):
            for event in floor.extend_pause(sample):
                react(event)
