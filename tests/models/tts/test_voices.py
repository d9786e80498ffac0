"""All voices, transcribed by Whisper."""

from __future__ import annotations

import asyncio
import itertools
import re
from collections.abc import Iterator
from contextlib import aclosing
from functools import cache
from typing import Any

import numpy as np
import pytest
import soxr
from support import speech

from rejoinder.pipeline.audio.chunk import RATE, AudioChunk
from rejoinder.pipeline.audio.loudness import AUDIBLE
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.interfaces import Stt, Tts

pytestmark = pytest.mark.weights
RATES = {"piper": 22_050, "hibari": 24_000, "scripted:tts": 24_000}
CLAUSE = (
    "The quick brown fox jumps over the lazy dog while seven wizards brew strong coffee, and nobody in the "
    "whole valley notices that the sun has quietly gone down."
)
SENTENCES = {
    "Hello there, it is sunny today.": "hello there it is sunny today",
    "That is **really** good, and *very* cheap.": "that is really good and very cheap",
    "It costs $12.50 in total.": "it costs twelve dollars and fifty cents in total",
    "It is 21 degrees outside.": "it is twenty one degrees outside",
    "We moved here in 1984.": "we moved here in nineteen eighty four",
    "Dr. Smith lives on the 3rd floor.": "doctor smith lives on the third floor",
    "See [our page](https://example.com/x) for more.": "see our page for more",
    CLAUSE: CLAUSE,
}
"""The text, and the expected transcript."""


@pytest.fixture(scope="module")
def piper() -> Iterator[Any]:
    model = speech.model("piper")
    yield model
    model.close()
    said.cache_clear()  # it keeps the voice


@pytest.fixture(scope="module")
def hibari() -> Iterator[Any]:
    model = speech.model("hibari")
    yield model
    model.close()
    said.cache_clear()


@pytest.fixture(scope="module", params=RATES)
def any_tts(request: pytest.FixtureRequest) -> tuple[Tts, int]:
    spec = request.param
    is_scripted = spec.startswith("scripted")
    model: Tts = speech.model(spec) if is_scripted else request.getfixturevalue(spec)
    return model, RATES[spec]


@pytest.fixture(scope="module", params=["piper", "hibari"])
def tts(request: pytest.FixtureRequest) -> Any:
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def whisper() -> Iterator[Any]:
    model = speech.model("whisper:tiny.en")
    yield model
    model.close()


def run(coroutine: Any) -> Any:
    with asyncio.Runner(debug=True) as runner:
        return runner.run(coroutine)


def say(tts: Tts, text: str) -> list[AudioChunk]:
    async def speak() -> list[AudioChunk]:
        async with aclosing(tts.speak(text)) as chunks:
            return [chunk async for chunk in chunks]

    spoken: list[AudioChunk] = run(speak())
    return spoken


said: Any = cache(say)
"""Like ``say``, but a clause is spoken once for all tests that only look at it."""


def joined(chunks: list[AudioChunk]) -> AudioChunk:
    """Return a clause's audio as one chunk, and assert that its chunks are contiguous."""
    assert [chunk.start for chunk in chunks[1:]] == [chunk.end for chunk in chunks[:-1]]
    return AudioChunk(b"".join(chunk.pcm for chunk in chunks), chunks[0].rate)


def edges(audio: AudioChunk) -> tuple[float, float]:
    """Return the seconds before the first and after the last audible sample.

    A sample that was audible before it was rounded towards zero, to 16 bits, counts.
    """
    loud = np.flatnonzero(np.abs(audio.samples()) > AUDIBLE - 1 / 32767)
    return loud[0] / audio.rate, (len(audio) - 1 - loud[-1]) / audio.rate


def listen(whisper: Stt, chunks: list[AudioChunk]) -> str:
    audio = joined(chunks)
    stream = whisper.stream()
    stream.feed(speech.chunk(soxr.resample(audio.samples(), audio.rate, RATE).astype(np.float32)))
    text: str = run(stream.transcribe(is_final=True)).text
    return text


def test_a_clause_is_audio_at_the_stated_rate(any_tts: tuple[Tts, int]) -> None:
    tts, rate = any_tts
    chunks = said(tts, "Hello there, it is sunny today.")
    assert {chunk.rate for chunk in chunks} == {rate}
    assert chunks[0].start == 0
    assert 1.0 < sum(chunk.seconds for chunk in chunks) < 4.0
    assert max(np.abs(chunk.samples()).max() for chunk in chunks) > 0.1


@pytest.mark.parametrize(
    "text", ["", " ", "\n", "...", "***", "- ", "🎉", "—", "\x00", "\ud800", "`` ``"], ids=ascii
)
def test_text_without_a_spoken_form_is_silent(any_tts: tuple[Tts, int], text: str) -> None:
    tts, _ = any_tts
    assert say(tts, text) == []


@pytest.mark.parametrize(
    "text, tail",
    [("Hello there.", 0.2), ("Is it?", 0.2), ("Well,", 0.1), ('"Yes."', 0.2), ("and then it", 0.02)],
)
def test_the_edges_are_trimmed(tts: Tts, text: str, tail: float) -> None:
    audio = joined(say(tts, text))
    before, after = edges(audio)
    assert before <= 0.005
    assert after <= tail + 0.001


UNUSUAL = (
    "x\x00y\x07",
    "Привет мир",
    "你好",
    "é à ü ñ ß",
    "ﷺ",
    "\ud800 hi",
    "a\u0301\u0302\u0303" * 10,
    "<b>hi</b> &amp; {x: [1]}",
    "\u202eabc\u202c",
    "½ ² ① ™ №",
    "I",
    "a" * 160,
    "9" * 20,  # more than 64 bits
    "C:\\dir\\x.py",
)


def test_unusual_characters_do_not_stop_the_voice(tts: Tts) -> None:
    for text in UNUSUAL:
        assert sum(chunk.seconds for chunk in say(tts, text)) < 60, ascii(text)
    assert say(tts, "Yes.")


def test_whisper_understands_what_is_said(tts: Tts, whisper: Stt) -> None:
    # Over all clauses together: Piper's audio is random, and a word is sometimes unclear.
    heard = [listen(whisper, said(tts, text)) for text in SENTENCES]
    assert speech.word_error_rate(list(SENTENCES.values()), heard) < 0.15, heard


def test_a_long_clause_takes_about_as_long_as_its_words(tts: Tts) -> None:
    assert len(CLAUSE) >= 155
    audio = joined(said(tts, CLAUSE))
    assert 6.0 < audio.seconds < 14.0


def test_audio_carries_word_times(tts: Tts) -> None:
    text = "It costs $12.50 — or so, at the end of the *day*. Yes! 🎉"
    chunks = say(tts, text)
    audio, words = joined(chunks), chunks[-1].words
    assert [text[:end].split()[-1] for _, end in words] == text.split()
    times = [time for time, _ in words]
    assert times == sorted(times)
    assert 0 < times[0] < 1.0
    assert audio.seconds - 0.5 < times[-1] < audio.seconds + 0.5
    for earlier, later in itertools.pairwise(chunks):
        assert later.words[: len(earlier.words)] == earlier.words


def test_a_listener_hears_the_words_up_to_the_end_of_each(tts: Tts, whisper: Stt) -> None:
    plain = (  # in sentences with rarer words Whisper mishears a word in one clause of ten
        "I will be home before dinner, and my brother wants to cook something with fish and rice "
        "for the whole family, because it is a holiday tomorrow."
    )
    chunks = say(tts, plain)
    audio, words = joined(chunks), chunks[-1].words[2::3]
    cuts = [AudioChunk(audio.pcm[: 2 * int(time * audio.rate)], audio.rate) for time, _ in words]
    heard = [listen(whisper, [cut]) for cut in cuts]
    assert speech.word_error_rate([plain[:end] for _, end in words], heard) < 0.15, heard
    off = [
        len(text.replace("-", " ").split()) - len(plain[:end].split())
        for (_, end), text in zip(words, heard, strict=True)
    ]
    assert max(map(abs, off)) <= 2, heard  # a word that is cut in the middle of a sound is misheard
    assert abs(sum(off)) < len(off) / 2, heard


def test_words_come_no_later_than_their_audio(tts: Tts) -> None:
    made = 0.0
    for chunk in say(tts, f"Yes. {CLAUSE} No, not today."):
        made += chunk.seconds
        silence = 1.0  # after a sentence, in a chunk of its own
        assert any(time > made - silence for time, _ in chunk.words)


def test_closing_early_and_cancelling_leave_the_voice_usable(any_tts: tuple[Tts, int]) -> None:
    tts, _ = any_tts

    async def interrupt() -> None:
        async with aclosing(tts.speak("Hello there.")) as chunks:
            async for _ in chunks:
                break
        for wait in (0.0, 0.01):
            task = asyncio.create_task(anext(tts.speak(CLAUSE)))
            await asyncio.sleep(wait)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    run(interrupt())
    assert say(tts, "Hello there.")


def test_concurrent_clauses_do_not_mix(tts: Tts) -> None:
    async def clause(text: str) -> AudioChunk:
        return joined([chunk async for chunk in tts.speak(text)])

    async def together() -> list[AudioChunk]:
        return await asyncio.gather(*map(clause, ("Yes.", "Hello there, it is sunny today.", "Not today.")))

    short, long, medium = run(together())
    assert short.seconds < medium.seconds < long.seconds


def test_failing_voice_is_named_in_the_error(tts: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(text: str) -> Any:
        raise ValueError("no breath")

    monkeypatch.setattr(tts, "_synthesise", broken)
    with pytest.raises(ModelError, match=rf"^{re.escape(tts.name)}: cannot speak 'yes\.': no breath$"):
        say(tts, "yes.")


def test_closed_voice_raises() -> None:
    voice = speech.model("hibari")
    voice.close()
    with pytest.raises(ModelError, match="hibari: the engine is closed"):
        say(voice, "Yes.")
