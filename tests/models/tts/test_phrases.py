"""A voice that keeps its phrases: they are there at once, and no more of them than there is room for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest

from rejoinder.models.scripted import ScriptedTts
from rejoinder.models.tts import phrases
from rejoinder.models.tts.phrases import PhraseVoice
from rejoinder.pipeline import AudioChunk, ModelError
from rejoinder.pipeline.replying.text.clauses import clauses_of


class Counting:
    """A scripted voice that counts what it is asked for, and cannot speak of the sea."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self._voice = ScriptedTts(seconds=0.0)

    async def speak(self, text: str) -> AsyncGenerator[AudioChunk, None]:
        """Stream the audio of one clause."""
        self.asked.append(text)
        if "sea" in text:
            raise ModelError("counting", "no sea")
        async with aclosing(self._voice.speak(text)) as chunks:
            async for chunk in chunks:
                for piece in chunk.slices(960):
                    yield piece


async def said(voice: PhraseVoice, text: str) -> bytes:
    async with aclosing(voice.speak(text)) as chunks:
        return b"".join([chunk.pcm async for chunk in chunks])


def test_rehearsed_phrase_is_not_synthesised_again() -> None:
    async def speak() -> None:
        inner = Counting()
        voice = PhraseVoice(inner)
        await voice.rehearse(["Hello.", "Hello."])
        assert inner.asked == ["Hello."]
        first = await said(voice, "Hello.")
        assert first == await said(voice, "Hello.") == await said(PhraseVoice(Counting()), "Hello.")
        assert inner.asked == ["Hello."]

    asyncio.run(speak())


def test_other_words_are_passed_on_and_not_kept() -> None:
    async def speak() -> None:
        inner = Counting()
        voice = PhraseVoice(inner)
        await said(voice, "Sunny.")
        await said(voice, "Sunny.")
        assert inner.asked == ["Sunny.", "Sunny."]

    asyncio.run(speak())


def test_learnt_phrase_is_kept_once_it_was_spoken_to_its_end() -> None:
    async def speak() -> None:
        inner = Counting()
        voice = PhraseVoice(inner)
        voice.learn(["Good morning, Anna."])
        async with aclosing(voice.speak("Good morning, Anna.")) as chunks:
            async for _ in chunks:
                break
        whole = await said(voice, "Good morning, Anna.")
        assert len(inner.asked) == 2, "the part is not kept"
        assert await said(voice, "Good morning, Anna.") == whole and len(inner.asked) == 2

    asyncio.run(speak())


def test_phrase_that_cannot_be_spoken_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    async def speak() -> None:
        voice = PhraseVoice(Counting())
        await voice.rehearse(["By the sea.", "Hello.", "..."])
        assert "'By the sea.' is not synthesised in advance: counting: no sea" in caplog.text
        with pytest.raises(ModelError):
            await said(voice, "By the sea.")

    asyncio.run(speak())


def test_least_recently_used_phrase_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    async def speak() -> None:
        inner = Counting()
        voice = PhraseVoice(inner)
        size = len(await said(voice, "Number 1."))
        monkeypatch.setattr(phrases, "MAX_PHRASE_BYTES", 2 * size)
        await voice.rehearse(["Number 1.", "Number 2."])
        await said(voice, "Number 1.")
        await voice.rehearse(["Number 3."])
        inner.asked.clear()
        for text in ("Number 1.", "Number 3.", "Number 2."):
            await said(voice, text)
        assert inner.asked == ["Number 2."]

    asyncio.run(speak())


def test_no_more_phrases_are_wanted_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async def speak() -> None:
        monkeypatch.setattr(phrases, "MAX_WANTED", 2)
        inner = Counting()
        voice = PhraseVoice(inner)
        voice.learn(["One.", "Two.", "Three."])
        for text in ("One.", "One.", "Three.", "Three."):
            await said(voice, text)
        assert inner.asked == ["One.", "One.", "Three."]

    asyncio.run(speak())


def test_greeting_is_kept_in_the_clauses_of_a_reply() -> None:
    assert clauses_of("Mario's, good evening. How can I help you?") == [
        "Mario's,",
        "good evening.",
        "How can I help you?",
    ]
    assert clauses_of("") == []
