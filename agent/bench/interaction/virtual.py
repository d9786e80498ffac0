"""Calls in virtual time: real voice activity, words and turn model, whatever else the machine does.

The clock stands still while a model works, and then moves by the model's usual time. So the load of the
machine does not count. There is no socket, the agent speaks in tones, and its words are a script.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from rejoinder.agent.bench.callers.timed_caller import TimedCaller
from rejoinder.agent.client.audio import CLIENT_RATE
from rejoinder.agent.simulate.virtual_clock import in_real_time, standing_still
from rejoinder.agent.wires.resampler import Resampler
from rejoinder.models.loading import Specs, open_models
from rejoinder.pipeline import (
    RATE,
    Event,
    Models,
    Options,
    OverlapEnded,
    OverlapStarted,
    ReplyAudio,
    ReplyDone,
    Session,
    SpeechStarted,
    Stt,
    SttStream,
    Transcript,
    TurnModel,
    open_session,
)
from rejoinder.pipeline.audio.chunk import Samples

TRANSCRIPT_SECONDS = 0.08
"""Virtual time of a transcript: that of Whisper tiny.en on two quiet cores (docs/lab/latency.md)."""
TURN_MODEL_SECONDS = 0.04
"""Virtual time of an answer of the turn model."""


class VirtualCaller(TimedCaller):
    """One call, from ``open_virtual_call``. It speaks and hears by itself until the block ends.

    holds: whether it holds its audio while the agent pauses.
    """

    def __init__(self, session: Session, background: Samples | None, holds: bool) -> None:
        super().__init__(background)
        self._session = session
        self._holds = holds
        self._down = Resampler(CLIENT_RATE, RATE)

    @property
    def now(self) -> int:
        """Samples at 24 kHz since the call began."""
        return round((self._loop.time() - self._began) * CLIENT_RATE)

    async def _next_frame(self) -> None:
        await asyncio.sleep(0.02)

    async def speak(self) -> None:
        """Send each frame of the microphone when it is complete, until cancelled."""
        while True:
            await asyncio.sleep(self._began + self.microphone.due() - self._loop.time())
            await self._session.hear(self._down.feed(self.microphone.frame()))

    async def listen(self) -> None:
        """Take the session's events as a client does, until it ends. Cancelling leaves the call open."""
        async for event in self._session.events:
            self._take(event)

    def _take(self, event: Event) -> None:
        match event:
            case ReplyAudio(turn, chunk):
                self.player.play(str(turn), chunk.samples(), self.now)
            case OverlapStarted() if self._holds:
                self.player.hold(self.now)
            case OverlapEnded() if self._holds:
                self.player.release(self.now)
            case SpeechStarted() | ReplyDone(status="cancelled"):
                self.player.flush(self.now)


@asynccontextmanager
async def virtual_models(llm: str, stt: str | None) -> AsyncIterator[Models]:
    """Open the listening models, whose work takes virtual time. Raises ModelError. Cancelling closes them."""
    specs = Specs(llm=llm, tts="scripted:tts")
    opening = open_models(replace(specs, stt=stt) if stt else specs)
    with in_real_time():  # warming up sleeps
        models = await opening.__aenter__()
    try:
        turn = _TimedTurnModel(models.turn) if models.turn else None
        yield replace(models, stt=_TimedStt(models.stt), turn=turn)
    finally:
        with in_real_time():
            await opening.__aexit__(None, None, None)


@asynccontextmanager
async def open_virtual_call(
    models: Models, background: Samples | None = None, holds: bool = False
) -> AsyncIterator[VirtualCaller]:
    """Hold a call while the block runs. Cancelling ends it.

    models: from ``virtual_models``. background: noise of the line, float32 of shape (n,) at 24 kHz.
    """
    async with open_session(models, Options(instructions="", holds_audio=holds)) as session:
        caller = VirtualCaller(session, background, holds)
        running = [asyncio.ensure_future(caller.speak()), asyncio.ensure_future(caller.listen())]
        try:
            yield caller
        finally:
            for task in running:
                task.cancel()
            await asyncio.wait(running)


class _TimedTurnModel:
    """A turn model that takes ``TURN_MODEL_SECONDS``."""

    def __init__(self, model: TurnModel) -> None:
        self._model = model

    async def probability(self, audio: Samples, text: str) -> float:
        """Return the model's probability. Cancelling cancels the model's work."""
        with standing_still():
            probability = await self._model.probability(audio, text)
        await asyncio.sleep(TURN_MODEL_SECONDS)
        return probability


class _TimedStt:
    """A recogniser whose transcripts take ``TRANSCRIPT_SECONDS``."""

    def __init__(self, model: Stt) -> None:
        self._model = model

    def stream(self) -> SttStream:
        """Open the state of one session."""
        return _TimedSttStream(self._model.stream())


class _TimedSttStream:
    """The stream of one session."""

    def __init__(self, stream: SttStream) -> None:
        self._stream = stream
        self.feed = stream.feed
        self.reset = stream.reset

    async def transcribe(self, is_final: bool) -> Transcript:
        """Return the model's transcript. Cancelling cancels the model's work."""
        with standing_still():
            transcript = await self._stream.transcribe(is_final=is_final)
        await asyncio.sleep(TRANSCRIPT_SECONDS)
        return transcript
