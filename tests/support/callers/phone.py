"""A caller on a simulated telephone line, in real time: speaks, plays what comes, returns marks."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import uvicorn
from support import speech
from support.callers.carriers import TwilioSim
from support.serving import PATIENCE, SCRIPTED, THREE_LINES
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.config import load
from rejoinder.agent.server.server import Server
from rejoinder.agent.server.serving import listen, web
from rejoinder.pipeline import RATE, AudioChunk

TICK = 0.02
REAL = {"stt": "whisper:tiny.en", "tts": "piper:en_US-joe-medium", "turn": "smart-turn", "vad": "silero"}


def question(rate: int) -> bytes:
    found = next(r for r in speech.recordings("phone_prompts_8k") if "weather" in r.path.stem)
    return bytes((found.load(rate) * 32767).astype("<i2").tobytes())


def plain(text: str) -> str:
    from whisper_normalizer.english import EnglishTextNormalizer

    return str(EnglishTextNormalizer()(text))


async def transcribed(program: Any, pcm: bytes, rate: int) -> str:
    """Return what the recogniser makes of what a caller has heard."""
    import soxr

    heard = soxr.resample(np.frombuffer(pcm, "<i2"), rate, RATE).astype("<i2").tobytes()
    stream = program.models.stt.stream()
    stream.feed(AudioChunk(heard, RATE))
    return str((await stream.transcribe(is_final=True)).text)


class Caller:
    """One call.

    lag: seconds that audio needs to the caller's ear. ear: PCM of what was heard, without silences.
    asked: what the server asked the carrier for but audio and marks. returned: names of marks, in order.
    """

    def __init__(self, socket: ClientConnection, sim: TwilioSim, lag: float = 0.0) -> None:
        self.socket = socket
        self.sim = sim
        self.lag = lag
        self.ear = bytearray()
        self.asked: list[str] = []
        self.returned: list[str] = []
        self.sizes: list[int] = []
        self.held = False
        self._loop = asyncio.get_running_loop()
        self._queue: deque[tuple[float, str, Any]] = deque()
        self._mouth = bytearray()

    @property
    def seconds_heard(self) -> float:
        return len(self.ear) / (2 * self.sim.rate)

    def say(self, pcm: bytes) -> None:
        """Say something, silence behind what is being said."""
        self._mouth += pcm

    async def until(self, true: Callable[[], object], seconds: float = PATIENCE) -> None:
        """Wait for something; fails where it does not come."""
        async with asyncio.timeout(seconds):
            while not true():  # noqa: ASYNC110 - what is waited for has no event
                await asyncio.sleep(TICK)

    async def speak(self) -> None:
        """Send 20 ms of the microphone every 20 ms, and play as much."""
        size = int(2 * self.sim.rate * TICK)
        began, ticks = self._loop.time(), 0
        while True:
            ticks += 1
            await asyncio.sleep(max(0.0, began + ticks * TICK - self._loop.time()))
            frame = bytes(self._mouth[:size]).ljust(size, b"\x00")
            del self._mouth[:size]
            for message in self.sim.audio(frame):
                await self.socket.send(message)
            if not self.held:
                await self._play(size)

    async def _play(self, size: int) -> None:
        while self._queue and self._queue[0][0] <= self._loop.time():
            due, kind, value = self._queue.popleft()
            if kind == "mark":
                await self._return(value)
                continue
            if not size:
                self._queue.appendleft((due, kind, value))
                return
            self.ear += value[:size]
            if len(value) > size:
                self._queue.appendleft((due, kind, value[size:]))
            size = max(0, size - len(value))

    async def _return(self, name: str) -> None:
        if (message := self.sim.played(name)) is not None:
            self.returned.append(name)
            await self.socket.send(message)

    async def listen(self) -> None:
        """Take what the server sends, until it hangs up."""
        async for frame in self.socket:
            for kind, value in self.sim.take(frame):
                if kind in ("media", "mark"):
                    self._queue.append((self._loop.time() + self.lag, kind, value))
                    self.sizes += [len(value)] if kind == "media" else []
                    continue
                self.asked.append(kind)
                self.held = kind == "hold"
                if kind == "clear":
                    out = [value for _, kind, value in self._queue if kind == "mark"]
                    self._queue.clear()
                    if self.sim.clears == "returns marks":
                        for name in out:
                            await self._return(name)


@asynccontextmanager
async def served(
    agent: Agent | None = None, followed: str = "", **flags: Any
) -> AsyncIterator[tuple[Server, str]]:
    """Serve in this process, where prompts can be read; yields the program and the address of its phone."""
    settings, _ = load({**SCRIPTED, "llm": THREE_LINES, "vad": "scripted:vad", "log_level": "error", **flags})
    program = Server(settings, lambda name, seconds: None, lambda error: None, agent=agent, followed=followed)
    running = uvicorn.Server(web(program))
    sock = listen("127.0.0.1", 0)
    task = asyncio.create_task(running.serve(sockets=[sock]))
    try:
        async with asyncio.timeout(6 * PATIENCE):
            while program.models is None:  # noqa: ASYNC110 - loading has no event
                await asyncio.sleep(TICK)
        yield program, f"ws://127.0.0.1:{sock.getsockname()[1]}/v1/phone"
        async with asyncio.timeout(PATIENCE):
            while program.calls:  # noqa: ASYNC110 - a call's end has no event
                await asyncio.sleep(TICK)
    finally:
        running.should_exit = True
        await task


@asynccontextmanager
async def calling(url: str, sim: TwilioSim, lag: float = 0.0) -> AsyncIterator[Caller]:
    """Hold a call for the length of the block, and hang up."""
    async with connect(url, proxy=None, compression=None) as socket:
        for frame in sim.start():
            await socket.send(frame)
        caller = Caller(socket, sim, lag)
        tasks = [asyncio.create_task(caller.listen()), asyncio.create_task(caller.speak())]
        try:
            yield caller
        finally:
            for task in tasks:
                task.cancel()
            for result in await asyncio.gather(*tasks, return_exceptions=True):
                if isinstance(result, Exception) and not isinstance(result, ConnectionClosed):
                    raise result
            if (stop := sim.stop()) is not None:
                await socket.send(stop)
