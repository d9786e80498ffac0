"""A voice that keeps the audio of phrases it says often, such as greetings."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing

from rejoinder.pipeline.audio.chunk import AudioChunk
from rejoinder.pipeline.errors import ModelError, Overloaded
from rejoinder.pipeline.interfaces import Tts

log = logging.getLogger(__name__)

MAX_PHRASE_BYTES = 8 << 20
"""Most audio kept for one voice, in bytes: three minutes at 22 kHz. The least recently used is dropped."""
MAX_WANTED = 256
"""Most phrases that are kept once they are spoken; the oldest is forgotten."""


class PhraseVoice:
    """A voice in front of another one. Phrases that it keeps are there at once; it passes all others on.

    A phrase is a clause, as a reply hands it to the voice. voice: the other one. asked: clauses that were
    spoken so far. reused: those of them whose audio was kept.
    """

    def __init__(self, voice: Tts) -> None:
        self.voice = voice
        self.asked = self.reused = 0
        self._kept: OrderedDict[str, list[AudioChunk]] = OrderedDict()
        self._wanted: OrderedDict[str, None] = OrderedDict()
        self._bytes = 0

    @property
    def kept(self) -> list[str]:
        """The phrases that are kept."""
        return list(self._kept)

    def speak(self, text: str) -> AsyncGenerator[AudioChunk, None]:
        """Stream the audio of one clause. Closing the generator stops the voice. Raises ModelError."""
        self.asked += 1
        if text in self._kept:
            self.reused += 1
            self._kept.move_to_end(text)
            return _again(self._kept[text])
        return self._keeping(text) if text in self._wanted else self.voice.speak(text)

    def learn(self, phrases: Iterable[str]) -> None:
        """Keep these phrases once they have been spoken to their end."""
        for phrase in phrases:
            self._wanted[phrase] = None
        while len(self._wanted) > MAX_WANTED:
            self._wanted.popitem(last=False)

    async def rehearse(self, phrases: Iterable[str]) -> None:
        """Synthesise phrases and keep them. One that the voice cannot speak is logged and left out.

        Cancelling keeps those that are done.
        """
        for phrase in phrases:
            self.learn([phrase])
            try:
                async with aclosing(self.speak(phrase)) as chunks:
                    async for _ in chunks:
                        pass
            except (ModelError, Overloaded) as error:
                log.warning("%r is not synthesised in advance: %s", phrase[:40], error)

    async def _keeping(self, text: str) -> AsyncGenerator[AudioChunk, None]:
        chunks: list[AudioChunk] = []
        async with aclosing(self.voice.speak(text)) as speaking:
            async for chunk in speaking:
                chunks.append(chunk)
                yield chunk
        size = sum(len(chunk.pcm) for chunk in chunks)
        if text not in self._kept and 0 < size <= MAX_PHRASE_BYTES:
            self._kept[text], self._bytes = chunks, self._bytes + size
        while self._bytes > MAX_PHRASE_BYTES:
            _, dropped = self._kept.popitem(last=False)
            self._bytes -= sum(len(chunk.pcm) for chunk in dropped)


async def _again(chunks: list[AudioChunk]) -> AsyncGenerator[AudioChunk, None]:
    for chunk in chunks:
        yield chunk
