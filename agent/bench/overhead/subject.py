"""The subject of ``rejoinder bench overhead``: sessions or the server, in a separate process."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from multiprocessing.connection import Connection as Pipe

import numpy as np
from uvicorn import Config

from rejoinder.agent.bench.process import peak_memory
from rejoinder.agent.config import Settings
from rejoinder.agent.server.descriptors import allow_sockets
from rejoinder.agent.server.server import Server
from rejoinder.agent.server.serving import listen, web
from rejoinder.agent.server.uvicorn_server import Uvicorn
from rejoinder.models.registry import create
from rejoinder.models.scripted import ScriptedLlm, ScriptedStt, ScriptedTts, ScriptedTurnModel
from rejoinder.models.threads import plan
from rejoinder.pipeline import Models, Session, TurnTraced, open_session
from rejoinder.pipeline.audio.chunk import RATE, Samples, to_pcm
from rejoinder.pipeline.interfaces import Vad

QUESTION = "what is the weather"
"""The scripted words of a caller."""
ANSWER = "It is a sunny day today."
"""The scripted reply."""
FRAME_SECONDS = 0.02
"""Length of one frame of audio, in seconds."""
CYCLE_FRAMES = 200
"""Frames from one turn of a speaking session to its next one: 4 s."""
TALK_FRAMES = 60
"""Frames of speech in each turn: 1.2 s. The answer follows."""
FIRST_FRAME = 50
"""Frames over which the sessions start: 1 s."""
TICK_SECONDS = 0.002
"""Frames of different callers that are due within this time are sent together. A wake-up costs more than a
frame, and here the server shares the processor."""
LOADED_CHECK_SECONDS = 0.05
"""Interval between two looks whether the models are loaded, in seconds."""
LAG_CHECK_SECONDS = 0.01
"""Interval between two measurements of the loop's lag."""
CLOSE_LAG_CHECK_SECONDS = 0.001
"""The interval for single messages, which block the loop only briefly."""
START_COMMAND = "start"
"""Command over the pipe: begin to measure."""
STOP_COMMAND = "stop"
"""Command over the pipe: reply with ``Spent``."""
END_COMMAND = "end"
"""Command over the pipe: end the process."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A number of sessions; the first ``speaking`` speak. The first ``warm`` seconds do not count.

    muted: whether the others are connected, and send nothing; otherwise they send silence.
    """

    sessions: int
    speaking: int
    warm: float
    seconds: float
    muted: bool = False

    @property
    def sending(self) -> int:
        """The sessions that send frames: the first ones."""
        return self.speaking if self.muted else self.sessions

    @property
    def warm_frames(self) -> int:
        """Frames of each session before the measurement."""
        return int(self.warm / FRAME_SECONDS)

    def talks(self, session: int, frame: int) -> bool:
        """Return whether a session speaks in a frame. The turns of the sessions are staggered."""
        return session < self.speaking and (frame + 37 * session - FIRST_FRAME) % CYCLE_FRAMES < TALK_FRAMES

    async def feed(self, send: Callable[[int, int], Awaitable[None]], tick: float = 0.0) -> None:
        """Call ``send(session, frame)`` for each frame when it is due; sessions are spread over the 20 ms.

        tick: shortest sleep in seconds. Frames that are due within it are sent together, late by at most this
        time. Cancelling stops between two frames.
        """
        loop = asyncio.get_running_loop()
        began = loop.time()
        for count in range(int((self.warm + self.seconds) / FRAME_SECONDS) * self.sending):
            if (wait := began + count * FRAME_SECONDS / self.sending - loop.time()) > 0:
                await asyncio.sleep(max(wait, tick))
            session, frame = count % self.sending, count // self.sending
            if frame >= session * FIRST_FRAME // self.sending:  # calls begin at different times
                await send(session, frame)


@dataclass(slots=True)
class Spent:
    """The cost of a period: CPU seconds, elapsed seconds, and lags of the loop in seconds.

    busy: CPU seconds of the loop's thread between two measurements; excludes other load of the machine.
    peak: largest memory of the process since its start, in bytes. callers: CPU seconds of the callers.
    """

    processor: float = 0.0
    seconds: float = 0.0
    lags: list[float] = field(default_factory=list)
    busy: list[float] = field(default_factory=list)
    answers: int = 0
    peak: int = 0
    callers: float = 0.0


class Watch:
    """Measures this process, with all of its threads, and its event loop."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Start a new measurement."""
        self.spent = Spent()
        self._processor, self._began = time.process_time(), time.perf_counter()

    def stop(self) -> Spent:
        """Return the cost since the start of the measurement."""
        self.spent.processor = time.process_time() - self._processor
        self.spent.seconds = time.perf_counter() - self._began
        self.spent.peak = peak_memory()
        return self.spent

    async def look(self, seconds: float = LAG_CHECK_SECONDS) -> None:
        """Record the lag of the loop until cancelled. seconds: interval between two measurements."""
        loop = asyncio.get_running_loop()
        while True:
            due, began = loop.time() + seconds, time.thread_time()
            await asyncio.sleep(seconds)
            self.spent.lags.append(loop.time() - due)
            self.spent.busy.append(time.thread_time() - began)


def sounds(rate: int) -> tuple[bytes, bytes]:
    """Return a quiet frame (-66 dBFS) and a loud frame, 16-bit mono, at ``rate`` hertz."""
    noise: Samples = np.random.default_rng(0).normal(0.0, 1.0, int(rate * FRAME_SECONDS)).astype(np.float32)
    return to_pcm(0.0005 * noise), to_pcm(0.2 * noise)


def hold_sessions(load: Workload, vad: str, pipe: Pipe) -> None:
    """Hold sessions in this process, without sockets, and send their cost over the pipe."""
    pipe.send(asyncio.run(_hold(load, create(vad, plan()))))


async def _hold(load: Workload, vad: Vad) -> Spent:
    models = Models(vad, ScriptedStt([QUESTION]), ScriptedLlm([ANSWER]), ScriptedTts(), ScriptedTurnModel())
    frames, watch = sounds(RATE), Watch()
    async with AsyncExitStack() as stack:
        sessions = [await stack.enter_async_context(open_session(models)) for _ in range(load.sessions)]
        watching = [asyncio.create_task(_count(session, watch)) for session in sessions]
        watching.append(asyncio.create_task(watch.look()))

        async def send(session: int, frame: int) -> None:
            if (session, frame) == (0, load.warm_frames):
                watch.start()
            await sessions[session].hear(frames[load.talks(session, frame)])

        await load.feed(send)
        spent = watch.stop()
        for task in watching:
            task.cancel()
        return spent


async def _count(session: Session, watch: Watch) -> None:
    async for event in session.events:
        watch.spent.answers += isinstance(event, TurnTraced)


def serve_watched(vad: str, wyoming_port: int, more: Mapping[str, object], pipe: Pipe) -> None:
    """Serve on a free loopback port; send the port and the costs over the pipe, until it receives END.

    wyoming_port: port for Wyoming; 0: no Wyoming, and the loop's lag is measured less often. more: further
    settings.
    """
    with asyncio.Runner(loop_factory=Config("").get_loop_factory()) as runner:  # the server's own loop
        runner.run(_serve(vad, wyoming_port, more, pipe))


async def _serve(vad: str, wyoming_port: int, more: Mapping[str, object], pipe: Pipe) -> None:
    models = {"vad": vad, "turn": "scripted:turn", "tts": "scripted:tts"}
    models |= {"stt": f"scripted:stt|{QUESTION}", "llm": f"scripted:llm|{ANSWER}"}
    own = {"max_sessions": 10_000, "wyoming_port": wyoming_port, **more}
    settings = Settings.model_validate({**own, **models})
    allow_sockets()
    sock = listen(settings.host, 0)
    program = Server(settings, lambda model, seconds: None, lambda error: None)
    server, watch = Uvicorn(web(program), program.end_streams, program.drain), Watch()

    def obey() -> None:
        try:
            command = pipe.recv()
        except EOFError:  # the callers' process was killed
            command = END_COMMAND
            asyncio.get_running_loop().remove_reader(pipe.fileno())
        match command:
            case "start":
                watch.start()
            case "stop":
                pipe.send(watch.stop())
            case _:
                server.should_exit = True

    async def greet() -> None:
        while program.models is None:  # noqa: ASYNC110 - loading has no event
            await asyncio.sleep(LOADED_CHECK_SECONDS)
        pipe.send(sock.getsockname()[1])
        await watch.look(CLOSE_LAG_CHECK_SECONDS if wyoming_port else LAG_CHECK_SECONDS)

    asyncio.get_running_loop().add_reader(pipe.fileno(), obey)
    async with asyncio.TaskGroup() as tasks:
        looking = tasks.create_task(greet())
        await server.serve(sockets=[sock])
        looking.cancel()
