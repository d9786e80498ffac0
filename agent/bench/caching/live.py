"""Live calls whose callers ask what others have asked, and the time to the first audio."""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from rejoinder.models.caching.cache import LOOKUP_S, SemanticCache
from rejoinder.models.caching.entries import packed
from rejoinder.models.caching.sqlite import SqliteStore
from rejoinder.models.caching.store import AnswerStore, CacheLimits
from rejoinder.pipeline import (
    RATE,
    AudioChunk,
    Models,
    Options,
    PipelineError,
    ReplyDone,
    Session,
    Trace,
    Tts,
    TurnTraced,
    open_session,
)
from rejoinder.pipeline.audio.chunk import to_pcm
from rejoinder.pipeline.audio.resample import ToSession
from rejoinder.pipeline.caching.answers import CachedAnswer, CacheQuestion

LIVE_QUESTIONS = (
    ("What is the capital of France?", "Can you tell me what the capital of France is?"),
    ("How many legs does a spider have?", "How many legs has a spider got?"),
    ("Who wrote Hamlet?", "Who is the author of Hamlet?"),
    ("How much does shipping cost?", "What is the price of shipping?"),
    ("How do airplanes fly?", "How does an airplane fly?"),
    ("What is photosynthesis?", "Please explain what photosynthesis is."),
)
"""What a first caller asks, and what a second one does."""
SLICE_S = 0.02
"""Length of one message of a caller's audio, in seconds."""
CALL_S = 60.0
"""Longest call, in seconds."""
LEAD_S = 0.5
"""Silence before the question, in seconds."""


@dataclass(frozen=True, slots=True)
class LiveAnswer:
    """One answer. match: cache_exact, cache_similar or cache_miss; "" without a cache.

    decided_ms: from the decided end of the turn to the first audio. speech_ms: from the last speech to it.
    lookup_ms: how long the search in the cache took.
    """

    words: str
    heard: str
    match: str
    decided_ms: float
    speech_ms: float
    lookup_ms: float


async def say(words: str, tts: Tts) -> bytes:
    """Return words as a voice speaks them, in 16-bit PCM at 16 kHz.

    Raises ModelError. Cancelling stops the voice.
    """
    to_session, pcm = None, b""
    async with aclosing(tts.speak(words)) as chunks:
        async for chunk in chunks:
            to_session = to_session or ToSession(chunk.rate)
            pcm += to_pcm(to_session.feed(chunk.pcm))
    return pcm


async def ask(models: Models, options: Options, words: str, pcm: bytes) -> LiveAnswer:
    """Hold one call in real time, until its answer was heard to its end.

    Raises PipelineError where nothing is answered within ``CALL_S``. Cancelling hangs up.
    """
    trace: Trace | None = None
    try:
        async with asyncio.timeout(CALL_S), open_session(models, options) as session:
            talking = asyncio.create_task(_talk(session, pcm))
            try:
                async for event in session.events:
                    if isinstance(event, TurnTraced):
                        trace = event.trace
                    if isinstance(event, ReplyDone):
                        break
                if session.reply and session.reply.task:
                    await asyncio.wait([session.reply.task])  # until it has played, and is kept
            finally:
                talking.cancel()
                with suppress(asyncio.CancelledError):
                    await talking
    except TimeoutError:
        raise PipelineError(f"{words!r} was not answered within {CALL_S:g} s") from None
    if trace is None:
        raise PipelineError(f"{words!r} was not answered aloud")
    marks, counts = trace.marks, trace.counts
    sent = marks["audio_sent"]
    return LiveAnswer(
        words,
        trace.said,
        next((name for name in ("cache_exact", "cache_similar", "cache_miss") if name in counts), ""),
        (sent - marks["committed"]) * 1000.0,
        (sent - marks["speech_ended"]) * 1000.0,
        counts.get("cache_ms", 0.0),
    )


async def _talk(session: Session, pcm: bytes) -> None:
    loop, size = asyncio.get_running_loop(), 2 * int(SLICE_S * RATE)
    begun, audio = loop.time(), bytes(2 * int(LEAD_S * RATE)) + pcm
    for place in range(int(CALL_S / SLICE_S)):
        part = audio[place * size : (place + 1) * size]
        await session.hear(part + bytes(size - len(part)))
        await asyncio.sleep(begun + (place + 1) * SLICE_S - loop.time())


async def live(
    models: Models, options: Options, questions: Sequence[tuple[str, str]], done: Callable[[], None]
) -> list[tuple[LiveAnswer, LiveAnswer]]:
    """Return the answers of both callers of each question. The second may hit what the first one filled.

    done: called after each call. Raises PipelineError. Cancelling hangs up.
    """
    answers = []
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteStore(Path(folder) / "answers.db", CacheLimits(), time.time)
        async with SemanticCache(store, "meaning").running() as cache:
            options = replace(options, cache=cache.of("bench"))
            for first, second in questions:
                pair = []
                for words in (first, second):
                    pair.append(await ask(models, options, words, await say(words, models.tts)))
                    done()
                answers.append((pair[0], pair[1]))
    return answers


async def lookups(store: AnswerStore, entries: int, count: int) -> list[float]:
    """Return the milliseconds of ``count`` lookups among ``entries`` answers of 3 s; every second one hits.

    It empties the store before and after. Cancelling leaves the entries.
    """
    cache, answer = SemanticCache(store), CachedAnswer([("Yes.", AudioChunk(bytes(6 * 22_050), 22_050))])
    await store.purge()
    for number in range(entries):
        question = _numbered(number)
        await store.put(cache.key("bench", question) or "", packed(question, answer))
    times, choose = [], random.Random(0)
    for number in range(count):
        hits = number % 2 == 0
        question = _numbered(choose.randrange(entries) + (0 if hits else entries))
        begun = time.perf_counter()
        found = await cache.find("bench", question)
        times.append((time.perf_counter() - begun) * 1000.0)
        if (found is not None) != hits and times[-1] < LOOKUP_S * 1000.0:
            raise PipelineError("a lookup found another answer than was stored")
        if found is None and hits:
            cache = SemanticCache(store)  # it was late: the next one is not left out
    await store.purge()
    return times


def _numbered(number: int) -> CacheQuestion:
    return CacheQuestion(f"How much is ticket number {number} to the moon?", "scope", "whisper:tiny.en")
