"""The sentence that replaces a refused clause, with its audio."""

from __future__ import annotations

import logging
from contextlib import aclosing

from rejoinder.pipeline.audio.chunk import AudioChunk, Words
from rejoinder.pipeline.engines.deadline import SPARE_SECONDS, Deadline, current
from rejoinder.pipeline.errors import asking
from rejoinder.pipeline.interfaces import Tts

log = logging.getLogger(__name__)

REFUSAL = "I'm sorry, I can't say that."
"""The sentence where none is configured."""
MAX_VOICES = 16
"""Most voices whose audio of the sentence is kept; the oldest goes."""


class Refusal:
    """The sentence of a guard. Its audio is synthesised once for each voice, and all calls share it."""

    def __init__(self, words: str = REFUSAL) -> None:
        self.words = words
        self._audio: dict[int, tuple[Tts, AudioChunk]] = {}
        self._under_way: set[int] = set()

    def audio(self, tts: Tts) -> AudioChunk | None:
        """Return the sentence in a voice, None while it is not synthesised."""
        kept = self._audio.get(id(tts))
        return kept[1] if kept else None

    async def prepare(self, tts: Tts) -> None:
        """Synthesise the sentence, after all other work. A voice that fails is logged.

        Cancelling leaves it to the next call.
        """
        voice = id(tts)
        if voice in self._audio or voice in self._under_way:
            return
        self._under_way.add(voice)
        current.set(Deadline(slack=SPARE_SECONDS))
        try:
            if audio := await _spoken(tts, self.words):
                self._audio[voice] = tts, audio  # with the voice, so that its number stays taken
                for oldest in list(self._audio)[:-MAX_VOICES]:
                    del self._audio[oldest]
        except Exception as error:  # whatever it is: the sentence is spoken when it is needed
            log.warning("the sentence for refused words was not synthesised: %s", error)
        finally:
            self._under_way.discard(voice)


async def _spoken(tts: Tts, words: str) -> AudioChunk | None:
    pcm, rate, times = [], 0, Words()
    with asking("voice"):
        async with aclosing(tts.speak(words)) as chunks:
            async for chunk in chunks:
                pcm.append(chunk.pcm)
                rate, times = chunk.rate, chunk.words or times
    return AudioChunk(b"".join(pcm), rate, 0, times) if pcm else None
