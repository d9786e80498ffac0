"""The classes that run in replicas of Ray Serve: each wraps one model with its engine.

The engine batches the requests of all call servers, and runs the most urgent first, as it does within one
process; so Ray's own batching is not used.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import Any

from rejoinder.models.engines import engines_of
from rejoinder.models.loading import WARM_UPS
from rejoinder.models.placement import Placement
from rejoinder.models.ray.messages import Missing, TurnAudio, Work
from rejoinder.models.ray.names import kind_of
from rejoinder.models.ray.scaling import QUEUE_AGE
from rejoinder.models.registry import create
from rejoinder.models.threads import plan, quiet
from rejoinder.pipeline.audio.chunk import RATE, AudioChunk, Samples
from rejoinder.pipeline.engines.engine import Engine
from rejoinder.pipeline.interfaces import SttStream, Transcript

MOST_SESSIONS = 1_000
"""Most sessions whose audio a replica keeps. The one that was longest silent goes first."""
SILENT_S = 60.0
"""Seconds after the last request of a session, after which a replica drops its audio."""


class Replica:
    """A model behind the requests of many call servers.

    spec: the model. cores: number of cores that its engine may use, None for all. cuda: it runs on a GPU.
    """

    def __init__(self, spec: str, cores: int | None = None, cuda: bool = False) -> None:
        quiet()
        self._kind = kind_of(spec)
        self._model: Any = create(spec, plan(cores, cuda), Placement(cuda=cuda))
        self._turns = RemoteTurns(self._model.stream) if self._kind == "stt" else None
        self._warm = asyncio.Lock()
        self._ready = False
        self._waits = EngineWaits(engines_of(self._model))

    async def check_health(self) -> None:
        """Run the model once before the first request: Ray asks before it sends requests, and from then on.

        Raises ModelError. Cancelling ends the run.
        """
        async with self._warm:
            if not self._ready:
                await WARM_UPS[self._kind](self._model)
                self._ready = True

    def record_autoscaling_stats(self) -> dict[str, float]:
        """Return how long requests have waited since the last question, by the name that Ray passes on."""
        return {QUEUE_AGE: self._waits.longest()}

    async def probability(self, audio: Samples, text: str, work: Work) -> float:
        """Return the turn model's answer. Raises ModelError. Cancelling discards it."""
        with work.applied():
            found: float = await self._model.probability(audio, text)
            return found

    async def transcribe(self, heard: TurnAudio) -> Transcript | Missing:
        """Return the words of a turn so far, or which audio is missing. Raises ModelError.

        Cancelling keeps the audio.
        """
        assert self._turns is not None
        return await self._turns.of(heard.session).transcribe(heard)

    async def speak(self, text: str, work: Work) -> AsyncGenerator[AudioChunk, None]:
        """Yield the audio of a clause. Raises ModelError. Closing the generator cancels the synthesis."""
        with work.applied():
            speaking = self._model.speak(text)
        async with aclosing(speaking):
            while True:
                with work.applied():  # a generator runs in the context of the asking task
                    try:
                        chunk = await anext(speaking)
                    except StopAsyncIteration:
                        return
                work.later(len(chunk) / chunk.rate)
                yield chunk


class EngineWaits:
    """How long requests wait for engines."""

    def __init__(self, engines: Sequence[Engine[Any, Any]]) -> None:
        self._engines = engines
        self._before = [(0.0, 0)] * len(engines)

    def longest(self) -> float:
        """Return the seconds of the engine where requests wait longest.

        That is the age of the oldest one that waits, or the mean wait since the last call if that was longer.
        """
        waits = [0.0]
        for place, engine in enumerate(self._engines):
            waited, jobs = engine.stats.waited, engine.stats.jobs
            waited_before, jobs_before = self._before[place]
            self._before[place] = waited, jobs
            mean = (waited - waited_before) / max(1, jobs - jobs_before)
            waits.append(max(engine.age, mean))
        return max(waits)


class RemoteTurns:
    """The turns of the sessions that a replica serves. stream: makes the state of a session.

    No request says that a session has ended, so one that is silent for ``SILENT_S`` is dropped. If it goes
    on, its audio is sent again.
    """

    def __init__(self, stream: Callable[[], SttStream], most: int = MOST_SESSIONS) -> None:
        self._stream, self._most = stream, most
        self._turns: OrderedDict[str, tuple[float, RemoteTurn]] = OrderedDict()
        self._sweep: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        """Return the number of sessions."""
        return len(self._turns)

    def of(self, session: str) -> RemoteTurn:
        """Return the turn of a session, a new one if it is not known."""
        loop = asyncio.get_running_loop()
        _, turn = self._turns.pop(session, (0.0, None))
        turn = turn or RemoteTurn(self._stream())
        self._turns[session] = loop.time(), turn
        while len(self._turns) > self._most:
            self._turns.popitem(last=False)
        self._sweep = self._sweep or loop.call_later(SILENT_S, self._drop_silent)
        return turn

    def _drop_silent(self) -> None:
        loop = asyncio.get_running_loop()
        while self._turns and next(iter(self._turns.values()))[0] <= loop.time() - SILENT_S:
            self._turns.popitem(last=False)
        self._sweep = loop.call_later(SILENT_S, self._drop_silent) if self._turns else None


class RemoteTurn:
    """The audio of a session's current turn in a replica.

    Requests of one session may overtake each other, and a replica may be new to a session, so each request
    says where its audio belongs. One runs at a time: the state of a session is for one request.
    """

    def __init__(self, stream: SttStream) -> None:
        self._stream = stream
        self._turn = -1
        self._have = 0
        self._one = asyncio.Lock()

    async def transcribe(self, heard: TurnAudio) -> Transcript | Missing:
        """Take the audio that is new and return the words, or which audio is missing. Raises ModelError.

        Cancelling keeps the audio.
        """
        async with self._one:
            return await self._transcribe(heard)

    async def _transcribe(self, heard: TurnAudio) -> Transcript | Missing:
        if heard.turn < self._turn:
            return Transcript("", heard.is_final, heard.start)  # no call waits for an older turn
        if heard.turn > self._turn:
            self._stream.reset()
            self._turn, self._have = heard.turn, 0
        if heard.at > self._have:
            return Missing(self._have)
        fresh = heard.pcm[2 * (self._have - heard.at) :]
        if fresh:
            self._stream.feed(AudioChunk(fresh, RATE, heard.start + self._have))
            self._have += len(fresh) // 2
        with heard.work.applied():
            return await self._stream.transcribe(is_final=heard.is_final)
