"""Transcribes a recording, beside the live audio of a session."""

from __future__ import annotations

import asyncio

from rejoinder.pipeline.audio.chunk import RATE, AudioChunk
from rejoinder.pipeline.errors import asking
from rejoinder.pipeline.interfaces import Stt
from rejoinder.pipeline.listening.user_audio import HEAR_SLICE


async def transcribe_recording(stt: Stt, pcm: bytes) -> str:
    """Return the words of a recording.

    pcm: little-endian 16-bit mono PCM at 16 kHz. Raises ModelError. Cancelling stops the recognition.
    """
    stream = stt.stream()
    for second in AudioChunk(pcm, RATE).slices(RATE):
        for piece in second.slices(HEAR_SLICE):
            stream.feed(piece)
        await asyncio.sleep(0)  # other calls run in between
    with asking("speech recogniser"):
        return (await stream.transcribe(is_final=True)).text
