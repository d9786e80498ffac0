"""Wyoming's requests answered by the models of the calls, which go before them."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import cached_property
from typing import Any

from rejoinder.agent.config import Settings
from rejoinder.agent.wires.failures import PublicError, reported
from rejoinder.agent.wires.voices import check_voice
from rejoinder.agent.wires.wyoming.info import info, name_of, speaks, stt_languages
from rejoinder.agent.wires.wyoming.protocol import Event
from rejoinder.agent.wires.wyoming.requests import Describe, Handle, Hear, Ping, Request, Speak
from rejoinder.models.llm.priority_gate import written
from rejoinder.pipeline import (
    RATE,
    AudioChunk,
    Channel,
    History,
    Models,
    Overloaded,
    ProtocolError,
)
from rejoinder.pipeline.errors import asking, first_error
from rejoinder.pipeline.replying.clauses import ClauseSplitter

log = logging.getLogger(__name__)

ANSWERS_AT_ONCE = 2
"""Answers of the language model that are written at once: half of what one session may have beside its
conversation. Of the recogniser and the voice Wyoming has one step at a time, however many ask, so that a
caller waits for one at most."""
MAX_ANSWER = 4_000
"""Characters after which an answer is over: a model that does not find its end would write for ever."""
CONVERSATIONS, EXCHANGES = 64, 20
"""Conversations that are remembered, and of each so many questions with their answers."""
FORGET_SECONDS = 300
"""Home Assistant's own: a conversation in which nobody has said anything for so long is over."""
SLICE_SAMPLES = 4096
"""Samples in one ``audio-chunk``: 0.2 s."""


class Memory:
    """What was asked and answered lately, by the name that the client gave the conversation."""

    def __init__(self) -> None:
        self._exchanges: OrderedDict[str, tuple[float, deque[tuple[str, str]]]] = OrderedDict()

    def read(self, name: str, now: float) -> list[tuple[str, str]]:
        """Return the questions and answers of a conversation, the oldest first."""
        since, exchanges = self._exchanges.get(name, (now, deque[tuple[str, str]]()))
        return list(exchanges) if now - since < FORGET_SECONDS else []

    def add(self, name: str, question: str, answer: str, now: float) -> None:
        """Note a question that was answered."""
        exchanges = deque(self.read(name, now), EXCHANGES)
        exchanges.append((question, answer))
        self._exchanges[name] = now, exchanges
        self._exchanges.move_to_end(name)
        while len(self._exchanges) > CONVERSATIONS:
            self._exchanges.popitem(last=False)


class Answers:
    """What a Wyoming client is told, whichever connection asks.

    models: returns None while they load.
    """

    def __init__(self, settings: Settings, models: Callable[[], Models | None]) -> None:
        self._settings = settings
        self._models = models
        self._conversations = Memory()
        self._hearing, self._speaking = asyncio.Lock(), asyncio.Lock()
        self._thinking = asyncio.Semaphore(ANSWERS_AT_ONCE)

    async def answer(self, request: Request, connection: str) -> AsyncGenerator[Event, None]:
        """Stream the events that answer a request; closing the generator cancels what runs for it.

        connection: names a conversation whose client does not.
        """
        try:
            async with aclosing(self._answer(request, connection)) as events:
                async for event in events:
                    yield event
        except Exception as error:  # a request is a turn: what fails ends it, and no more
            public = reported(f"Wyoming: {connection}", "a request failed", first_error(error))
            in_words = isinstance(request, Handle) and public.ours and public.code != "overloaded"
            yield Event("not-handled", {"text": public.message}) if in_words else failure(public)

    @cached_property
    def _info(self) -> dict[str, Any]:
        return info(self._settings.specs())

    async def _answer(self, request: Request, connection: str) -> AsyncGenerator[Event, None]:
        match request:
            case Describe():
                yield Event("info", self._info)
                return
            case Ping():
                yield Event("pong", {"text": request.text})
                return
        models = self._models()
        if models is None:
            raise Overloaded("the models are still loading: try again in a few seconds")
        match request:
            case Hear():
                yield await self._hear(models, request)
                return
            case Speak():
                events = self._speak(models, request)
            case Handle():
                events = self._handle(models, request, connection)
        async with aclosing(events):
            async for event in events:
                yield event

    async def _hear(self, models: Models, request: Hear) -> Event:
        known = stt_languages(self._settings.stt)
        if not speaks(request.language, known):
            raise ProtocolError(
                f"{request.language} is not understood here, but {known[0]}", "unsupported-language"
            )
        stream = models.stt.stream()
        stream.feed(request.audio)
        async with self._hearing:
            with asking("speech recogniser"):
                transcript = await stream.transcribe(is_final=True)
        return Event("transcript", {"text": transcript.text, "language": known[0]})

    async def _speak(self, models: Models, request: Speak) -> AsyncGenerator[Event, None]:
        if request.format not in ("", "text"):
            raise ProtocolError(f"{request.format} is not spoken here, plain text is", "unsupported-format")
        if request.voice:
            check_voice(request.voice, name_of(self._settings.tts), "voice", "unsupported-voice")
        rate = position = 0
        async for clause in clauses(request.texts):
            async with aclosing(models.tts.speak(clause)) as chunks:
                while (chunk := await self._piece(chunks)) is not None:
                    if not rate:
                        rate = chunk.rate
                        yield audio("audio-start", rate, 0)
                    for piece in chunk.slices(SLICE_SAMPLES):
                        yield audio("audio-chunk", rate, position, piece.pcm)
                        position += len(piece)
        if not rate:  # without an end the client would wait for ever
            rate = RATE
            yield audio("audio-start", rate, 0)
        yield Event("audio-stop", {"timestamp": 1000 * position // rate})
        if request.streamed:
            yield Event("synthesize-stopped")

    async def _piece(self, chunks: AsyncGenerator[AudioChunk, None]) -> AudioChunk | None:
        async with self._speaking:  # nothing runs for us while the client takes what it has
            with asking("voice"):
                return await anext(chunks, None)

    async def _handle(self, models: Models, request: Handle, connection: str) -> AsyncGenerator[Event, None]:
        if not request.text.strip():
            yield Event("not-handled", {"text": "Nothing was asked."})
            return
        now, options = asyncio.get_running_loop().time, self._settings.options()
        name = f"named {request.conversation}" if request.conversation else connection
        history = History(options.instructions, options.examples, options.prompt_characters)
        for question, answer in self._conversations.read(name, now()):
            history.add_user(question)
            history.add("assistant", answer)
        context = {"context": {"conversation_id": request.conversation}} if request.conversation else {}
        yield Event("handled-start", context)
        answer = ""
        with asking("language model"):
            async with self._thinking, aclosing(written(models.llm, history.messages(request.text))) as words:
                async for word in words:
                    if len(answer) + len(word) > MAX_ANSWER:
                        break
                    answer += word
                    yield Event("handled-chunk", {"text": word})
        answer = answer.strip()
        if not answer:
            yield Event("not-handled", {"text": "There is no answer.", **context})
            return
        self._conversations.add(name, request.text, answer, now())
        yield Event("handled", {"text": answer, **context})
        yield Event("handled-stop")


async def clauses(texts: Channel[str]) -> AsyncGenerator[str, None]:
    """Yield what is to be spoken, in pieces that a voice can start on."""
    splitter = ClauseSplitter()
    async for words in texts:
        for clause in splitter.feed(words):
            yield clause
    if rest := splitter.flush():
        yield rest


def audio(type_: str, rate: int, position: int, pcm: bytes = b"") -> Event:
    """Return an event with the format of our audio; position: samples since its start."""
    format_ = {"rate": rate, "width": 2, "channels": 1, "timestamp": 1000 * position // rate}
    return Event(type_, format_, pcm)


def failure(error: PublicError) -> Event:
    """Return the event that tells a client what is wrong."""
    return Event("error", {"text": error.message, "code": error.code or "invalid"})
