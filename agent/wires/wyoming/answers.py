"""Answers Wyoming requests with the models of the calls. Calls have priority."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from functools import cached_property
from typing import Any

from rejoinder.agent.app.call import CallInfo
from rejoinder.agent.app.hosting import Hosting
from rejoinder.agent.app.text_answers import agent_answer
from rejoinder.agent.config import Settings
from rejoinder.agent.model_names import known_as
from rejoinder.agent.wires.failures import PublicError, reported
from rejoinder.agent.wires.voices import check_voice
from rejoinder.agent.wires.wyoming.info import info, speaks, stt_languages
from rejoinder.agent.wires.wyoming.protocol import Event
from rejoinder.agent.wires.wyoming.requests import Describe, Handle, Hear, Ping, Request, Speak
from rejoinder.pipeline import (
    RATE,
    AudioChunk,
    Channel,
    History,
    Llm,
    Models,
    Options,
    Overloaded,
    ProtocolError,
)
from rejoinder.pipeline.errors import asking, first_error
from rejoinder.pipeline.replying.text.clauses import ClauseSplitter

log = logging.getLogger(__name__)

ANSWERS_AT_ONCE = 2
"""Most answers of the language model at a time: half of what one session may have out of band. The recogniser
and the voice run one step at a time for all of Wyoming, so that a call waits for at most one."""
MAX_ANSWER = 4_000
"""Most characters of an answer: some models never stop by themselves."""
CONVERSATIONS = 64
"""Most conversations that are remembered."""
EXCHANGES = 20
"""Most questions, with their answers, that are remembered of a conversation."""
FORGET_SECONDS = 300
"""A conversation is forgotten after this time without a question, in seconds. Home Assistant does the
same."""
SLICE_SAMPLES = 4096
"""Most samples in one ``audio-chunk``: 0.2 s."""


class Memory:
    """Recent questions and answers, by the client's name of the conversation."""

    def __init__(self) -> None:
        self._exchanges: OrderedDict[str, tuple[float, deque[tuple[str, str]]]] = OrderedDict()

    def read(self, name: str, now: float) -> list[tuple[str, str]]:
        """Return the questions and answers of a conversation, oldest first. now: in seconds."""
        since, exchanges = self._exchanges.get(name, (now, deque[tuple[str, str]]()))
        return list(exchanges) if now - since < FORGET_SECONDS else []

    def add(self, name: str, question: str, answer: str, now: float) -> None:
        """Record a question and its answer. now: in seconds."""
        exchanges = deque(self.read(name, now), EXCHANGES)
        exchanges.append((question, answer))
        self._exchanges[name] = now, exchanges
        self._exchanges.move_to_end(name)
        while len(self._exchanges) > CONVERSATIONS:
            self._exchanges.popitem(last=False)


class Answers:
    """Answers the requests of all Wyoming connections.

    models: returns the models, None while they load. hosting: runs the integrator's agent.
    """

    def __init__(self, settings: Settings, models: Callable[[], Models | None], hosting: Hosting) -> None:
        self._settings = settings
        self._hosting = hosting
        self._models = models
        self._conversations = Memory()
        self._hearing, self._speaking = asyncio.Lock(), asyncio.Lock()
        self._thinking = asyncio.Semaphore(ANSWERS_AT_ONCE)

    async def answer(self, request: Request, connection: str) -> AsyncGenerator[Event, None]:
        """Yield the events that answer a request. Closing or cancelling stops the models' work for it.

        connection: the name of a conversation whose client gives it none.
        """
        try:
            async with aclosing(self._answer(request, connection)) as events:
                async for event in events:
                    yield event
        except Exception as error:  # an error ends this request, and nothing else
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
            check_voice(request.voice, known_as(self._settings.tts), "voice", "unsupported-voice")
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
        if not rate:  # the client waits for an end, even of no audio
            rate = RATE
            yield audio("audio-start", rate, 0)
        yield Event("audio-stop", {"timestamp": 1000 * position // rate})
        if request.streamed:
            yield Event("synthesize-stopped")

    async def _piece(self, chunks: AsyncGenerator[AudioChunk, None]) -> AudioChunk | None:
        async with self._speaking:  # released while the client takes the audio
            with asking("voice"):
                return await anext(chunks, None)

    async def _handle(self, models: Models, request: Handle, connection: str) -> AsyncGenerator[Event, None]:
        if not request.text.strip():
            yield Event("not-handled", {"text": "Nothing was asked."})
            return
        now = asyncio.get_running_loop().time
        options = self._hosting.current.options(self._settings.options())
        name = f"named {request.conversation}" if request.conversation else connection
        history = History.of(options, models.llm)
        for question, answer in self._conversations.read(name, now()):
            history.add_user(question)
            history.add("assistant", answer)
        context = {"context": {"conversation_id": request.conversation}} if request.conversation else {}
        yield Event("handled-start", context)
        answer = ""
        with asking("language model"):
            async with (
                self._thinking,
                aclosing(self._words(models.llm, history, request.text, connection)) as words,
            ):
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

    def _words(self, llm: Llm, history: History, text: str, connection: str) -> AsyncGenerator[str, None]:
        history.add_user(text)
        host = self._hosting.current
        return agent_answer(llm, history, host, host.new_call(CallInfo(connection, "wyoming"), Options()))


async def clauses(texts: Channel[str]) -> AsyncGenerator[str, None]:
    """Yield the text in clauses, which a voice can begin with.

    Closing or cancelling stops waiting for text.
    """
    splitter = ClauseSplitter()
    async for words in texts:
        for clause in splitter.feed(words):
            yield clause
    if rest := splitter.flush():
        yield rest


def audio(type_: str, rate: int, position: int, pcm: bytes = b"") -> Event:
    """Return an event with the format of the voice's audio.

    position: samples since the start of the audio.
    """
    format_ = {"rate": rate, "width": 2, "channels": 1, "timestamp": 1000 * position // rate}
    return Event(type_, format_, pcm)


def failure(error: PublicError) -> Event:
    """Return the event for an error."""
    return Event("error", {"text": error.message, "code": error.code or "invalid"})
