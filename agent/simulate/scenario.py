"""A conversation in virtual time: sound at set times, and a client that plays audio and logs events.

``caller`` builds on it: its callers react to what the agent says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from rejoinder.agent.client.audio import CLIENT_RATE
from rejoinder.agent.recording.no_recorder import NoRecorder
from rejoinder.agent.simulate import virtual_clock
from rejoinder.agent.simulate.line import Line, SimulatedPlayback
from rejoinder.agent.simulate.timeline import check_replies, timeline
from rejoinder.models.scripted import (
    ScriptedLlm,
    ScriptedStt,
    ScriptedTts,
    ScriptedTurnModel,
    ScriptedVad,
)
from rejoinder.pipeline import (
    CallOver,
    Endpointing,
    Event,
    Floor,
    Models,
    Options,
    ReplyDone,
    Session,
    open_session,
)
from rejoinder.pipeline.engines.load_shedding import LoadShedder
from rejoinder.pipeline.errors import HungUp, first_error

if TYPE_CHECKING:
    from rejoinder.agent.app.agent import Agent
    from rejoinder.agent.app.agent_call import AgentCall
    from rejoinder.agent.app.host import AgentHost

SCENARIO_ENDPOINTING = Endpointing(
    release=0.35, pause_ms=64, patience=5.0, min_wait_ms=320, unsure_wait_ms=1_600, max_wait_ms=880
)
"""The endpointing of the scenarios, so that they do not depend on the defaults."""
CHUNK_SECONDS = 0.02
"""Length of one chunk of the microphone."""
SPEECH_CHUNK = b"\x00\x30\x00\xd0" * 160
"""One chunk of speech, 16-bit mono at 16 kHz."""
LOUDEST = b"\x00\x60\x00\xa0" * 160
"""One chunk of louder speech."""
SOFT = b"\x80\x03\x80\xfc" * 160
"""One chunk of speech that is 29 dB below ``LOUDEST`` and still triggers voice activity."""
QUIET = b"\x00\x00" * 320
"""One chunk of silence."""

Act = Callable[[Session], Awaitable[None] | None]


class Talk:
    """One conversation. Plan its events, ``run`` it, then inspect the log and the models.

    lines, replies: the words of the user and of the agent. more: models (stt, llm, tts, vad, turn) and their
        specs, a line, an agent with tools, the language model of its worker, and options: a whole
        ``Options``, or single fields.
    opened: whether the session has begun.
    hung_up: (loop time in seconds, reason) at which the agent or a limit ended the call, None if none did.
    log: (loop time in seconds, event), in order. floors: (loop time in seconds, floor), at each change.
    """

    def __init__(self, *lines: str, replies: tuple[str, ...] = ("Sunny.",), **more: Any) -> None:
        self.stt: Any = more.pop("stt", None) or ScriptedStt(lines or ["what is the weather"])
        self.llm: Any = more.pop("llm", None) or ScriptedLlm(replies)
        self.tts: Any = more.pop("tts", None) or ScriptedTts()
        self.vad: Any = more.pop("vad", None) or ScriptedVad()
        self.turn_model: Any = more.pop("turn", None) or ScriptedTurnModel()
        self.load_shedder = LoadShedder()
        self.specs: dict[str, str] = more.pop("specs", {})
        self.line: Line = more.pop("line", Line())
        agent: Agent | None = more.pop("agent", None)
        self.host: AgentHost | None = hosted(agent) if agent else None
        worker: Any = more.pop("worker", None) or self.llm
        if self.host:
            self.host.llms |= {spec: worker for spec in ("", *self.host.worker_llms)}
        given: Options | None = more.pop("options", None)
        more.setdefault("endpointing", SCENARIO_ENDPOINTING)  # the scenarios must not depend on the defaults
        self.options = given or Options(instructions="", **more)
        self.ear = SimulatedPlayback(self.options.holds_audio, self.options.interrupt_response)
        self.log: list[tuple[float, Event]] = []
        self.floors: list[tuple[float, Floor]] = []
        self.session: Session
        self.opened = False
        self.hung_up: tuple[float, str] | None = None
        self._agent: AgentCall | None = None
        self._speech: list[tuple[float, float, bytes]] = []
        self._acts: list[tuple[float, Act]] = []

    def says(self, seconds: float, at: float, sound: bytes = SPEECH_CHUNK) -> None:
        """Plan sound from loop time ``at``, for ``seconds``. sound: one chunk, which repeats."""
        self._speech.append((at, at + seconds, sound))

    def does(self, act: Act, at: float) -> None:
        """Plan a call of ``act`` with the session at loop time ``at``."""
        self._acts.append((at, act))

    def run(self, until: float, microphone: bool = True) -> Talk:
        """Hold the conversation until loop time ``until``, close it, and check its invariants."""
        virtual_clock.run(self.hold(lambda: self._acts_until(until), microphone))
        self.check()
        return self

    async def hold(self, script: Callable[[], Awaitable[None]], microphone: bool = True) -> None:
        """Hold the conversation while its script runs. Cancelling ends it."""
        try:
            await self._hold(script, microphone)
        except BaseExceptionGroup as group:
            raise first_error(group) from group

    async def _hold(self, script: Callable[[], Awaitable[None]], microphone: bool) -> None:
        parts = self.vad, self.stt, self.llm, self.tts, self.turn_model
        models = Models(*parts, self.load_shedder, self.specs)
        async with AsyncExitStack() as stack:
            if self.host:
                await stack.enter_async_context(self.host.running())
                stack.push_async_callback(self.host.aclose)
                await self._answer(self.host)
            try:
                await self._converse(models, script, microphone)
            except* (CallOver, HungUp) as over:
                loop = asyncio.get_running_loop()
                if not self._agent:
                    raise
                self.hung_up = round(loop.time(), 3), str(first_error(over))
            finally:
                if self._agent:
                    reason = self.hung_up[1] if self.hung_up else "the client has left"
                    self._agent.end(reason, asyncio.get_running_loop().time())

    async def _answer(self, host: AgentHost) -> None:
        from rejoinder.agent.app.call import CallInfo

        self.options = host.options(self.options)
        self._agent = await host.answer(CallInfo("call-1", "simulated"), self.options)
        if self._agent:
            self.options = self._agent.configured(self._agent.call.options)

    async def _converse(
        self, models: Models, script: Callable[[], Awaitable[None]], microphone: bool
    ) -> None:
        async with asyncio.TaskGroup() as tasks, open_session(models, self.options) as session:
            self.session, self.opened = session, True
            agent = self._agent.run(session, NoRecorder()) if self._agent else None
            hosting = tasks.create_task(agent, name="agent") if agent else None
            tasks.create_task(self._note(session), name="client")
            speaking = tasks.create_task(self._speak(), name="microphone") if microphone else None
            await script()
            self.look()
            if speaking:
                speaking.cancel()
            if hosting:
                hosting.cancel()

    async def _acts_until(self, until: float) -> None:
        for at, act in sorted(self._acts, key=lambda planned: planned[0]):
            await sleep_until(at)
            if (doing := act(self.session)) is not None:
                await doing
        await sleep_until(until)

    async def _speak(self) -> None:
        tick, way = 0, self.line.way("up")
        while True:
            begin = tick * CHUNK_SECONDS
            tick += 1
            await sleep_until(way.arrival(tick * CHUNK_SECONDS))
            now = (sound for start, end, sound in self._speech if start <= begin + 1e-9 < end)
            await self.session.hear(next(now, QUIET))
            self.look()

    async def _note(self, session: Session) -> None:
        loop, way, back = asyncio.get_running_loop(), self.line.way("down"), self.line.way("back")
        async for event in session.events:
            self.log.append((loop.time(), event))
            self.look()
            if self._agent and self._agent.take(session, event):
                continue
            if (cut := self.ear.take(event, way.arrival(loop.time()))) and self.line.delay:
                heard = cut.played_ms / 1000.0  # the agent's estimate ignores the delay of the line
                loop.call_at(back.arrival(cut.at / CLIENT_RATE), self._truncate, int(cut.item), heard)

    def _truncate(self, turn: int, seconds: float) -> None:
        if not self.session.events.closed:
            self.session.truncate(turn, seconds)

    def look(self) -> None:
        """Log the floor if it has changed."""
        floor = self.session.floor.floor
        if not self.floors or self.floors[-1][1] is not floor:
            self.floors.append((asyncio.get_running_loop().time(), floor))

    def check(self) -> None:
        """Raise AssertionError if a request is left open or a reply does not end exactly once."""
        assert (self.llm.open, self.tts.open) == (0, 0)
        check_replies([event for _, event in self.log])

    def of(self, *kinds: type[Any]) -> list[Any]:
        """Return the events of some kinds."""
        return [event for _, event in self.log if isinstance(event, kinds)]

    def when(self, kind: type[Any]) -> list[float]:
        """Return the loop times of the events of a kind, in seconds."""
        return [round(at, 3) for at, event in self.log if isinstance(event, kind)]

    def done(self) -> list[tuple[int, str, str]]:
        """Return the end of each reply: turn, status and heard words."""
        return [(event.turn, event.status, event.heard) for event in self.of(ReplyDone)]

    def said(self) -> list[tuple[str, str]]:
        """Return the history as (role, words); a dash ends a reply that was cut."""
        entries = [entry for entry in self.session.history.entries if entry.text]
        return [(entry.role, entry.text + "—" * entry.cut) for entry in entries]

    def timeline(self) -> list[str]:
        """Return the log, one line per event, without traces. Consecutive audio of a reply is one line."""
        return timeline(self.log)

    def heard(self, turn: int, at: float) -> str:
        """Return the words of a reply that the client has played by loop time ``at``."""
        return self.ear.text(turn, at)


def hosted(agent: Agent) -> AgentHost:
    """Return what runs an agent. It is imported only here: other simulations need only numpy."""
    from rejoinder.agent.simulate.hosting import hosted as host

    return host(agent)


async def sleep_until(at: float) -> None:
    """Wait until a loop time. If it has passed, return without yielding to other tasks.

    Cancelling ends the wait, and changes nothing else.
    """
    if (left := at - asyncio.get_running_loop().time()) > 0:
        await asyncio.sleep(left)
