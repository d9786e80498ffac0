"""Speaks a text into a WAV file, which a carrier plays to someone else."""

from __future__ import annotations

import io
import wave

from rejoinder.pipeline import ModelError, Tts
from rejoinder.pipeline.audio.chunk import joined
from rejoinder.pipeline.replying.text.clauses import ClauseSplitter


async def spoken(voice: Tts, text: str) -> bytes:
    """Return a text as speech, in a WAV file with 16-bit mono audio.

    Raises ModelError where the voice fails or has nothing to say. Cancelling stops the voice.
    """
    splitter = ClauseSplitter()
    clauses = [*splitter.feed(text), splitter.flush()]
    chunks = [chunk for clause in clauses if clause async for chunk in voice.speak(clause)]
    if not chunks:
        raise ModelError("voice", f"no audio for {text[:80]!r}")
    audio, file = joined(chunks), io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(audio.rate)
        out.writeframes(audio.pcm)
    return file.getvalue()
