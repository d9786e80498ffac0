"""The classes that run in replicas of Ray Serve: each wraps one model with its engine.

The engine batches the requests of all call servers, and runs the most urgent first, as it does within one
process; so Ray's own batching is not used.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

from rejoinder.models.engines import engines_of
from rejoinder.models.loading import WARM_UPS
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


class Replica:
    """A model behind the requests of many call servers.

    spec: the model. cores: number of cores that its engine may use, None for all. most: sessions whose audio
    it keeps.
    """

    def __init__(self, spec: str, cores: int | None = None, most: int = MOST_SESSIONS) -> None:
        quiet()
        self._kind = kind_of(spec)
        self._model: Any = create(spec, plan(cores))
        self._sessions: OrderedDict[str, RemoteTurn] = OrderedDict()
        self._most = most
        self._warm = asyncio.Lock()
        self._ready = False
        self._waits = EngineWaits(engines_of(self._model))

    async def ready(self) -> str:
        """Run the model once, and return its role. Raises ModelError. Cancelling ends the run."""
        async with self._warm:
            if not self._ready:
                await WARM_UPS[self._kind](self._model)
                self._ready = True
        return self._kind

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
        turn = self._sessions.get(heard.session)
        if turn is None:
            turn = self._sessions[heard.session] = RemoteTurn(self._model.stream())
        self._sessions.move_to_end(heard.session)
        while len(self._sessions) > self._most:
            self._sessions.popitem(last=False)
        return await turn.transcribe(heard)

    async def speak(self, text: str, work: Work) -> AsyncGenerator[AudioChunk, None]:
        """Yield the audio of a clause. Raises ModelError. Closing the generator cancels the synthesis."""
        with work.applied():
            speaking = self._model.speak(text)
        async with aclosing(speaking):
            while True:
                with work.applied():  # a generator runs in the context of whoever asks for the next item
                    try:
                        chunk = await anext(speaking)
                    except StopAsyncIteration:
                        return
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


class RemoteTurn:
    """The audio of a session's current turn in a replica.

    Requests of one session may overtake each other, and a replica may be new to a session, so each request
    says where its audio belongs.
    """

    def __init__(self, stream: SttStream) -> None:
        self._stream = stream
        self._turn = -1
        self._have = 0

    async def transcribe(self, heard: TurnAudio) -> Transcript | Missing:
        """Take the audio that is new and return the words, or which audio is missing. Raises ModelError.

        Cancelling keeps the audio.
        """
        if heard.turn < self._turn:
            return Transcript("", heard.is_final, heard.start)  # nobody waits for an older turn
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
