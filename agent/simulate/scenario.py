"""A conversation in virtual time: sound at set times, and a client that plays audio and logs events.

``caller`` builds on it: its callers react to what the agent says.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from math import ceil
from typing import TYPE_CHECKING, Any

from rejoinder.agent.client.audio import CLIENT_RATE
from rejoinder.agent.simulate import virtual_clock
from rejoinder.agent.simulate.line import Line, SimulatedPlayback
from rejoinder.agent.simulate.timeline import check_replies, timeline
from rejoinder.agent.simulate.tool_use import ToolUse
from rejoinder.agent.wires.silence import Silence
from rejoinder.models.scripted import (
    ScriptedLlm,
    ScriptedStt,
    ScriptedTts,
    ScriptedTurnModel,
    ScriptedVad,
)
from rejoinder.pipeline import (
    RATE,
    CallOver,
    Endpointing,
    Event,
    Floor,
    Models,
    Options,
    ReplyAudio,
    ReplyDone,
    Session,
    open_session,
)
from rejoinder.pipeline.engines.load_shedding import LoadShedder
from rejoinder.pipeline.errors import first_error

if TYPE_CHECKING:
    from rejoinder.agent.app.agent import Agent
    from rejoinder.agent.app.agent_call import AgentCall
    from rejoinder.agent.app.call import Call, CallInfo
    from rejoinder.agent.app.control import CallControl
    from rejoinder.agent.simulate.failures import CodeFailure
    from rejoinder.agent.simulate.hosting import SimulatedHost

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
SILENT_CHUNK = b"\x00\x00" * 320
"""One chunk of silence."""
FILLER_GAP_S = 1.0
"""Longest gap in the audio of one filler, in seconds."""

Act = Callable[[Session], Awaitable[None] | None]


def simulated_host(agent: Agent[Any, Any], real_time: bool) -> SimulatedHost:
    """Return what runs an agent. It is imported only here: simulations without an agent need only numpy."""
    from rejoinder.agent.simulate.hosting import SimulatedHost

    return SimulatedHost(agent, real_time)


def simulated_info(given: CallInfo | None) -> CallInfo:
    """Return what an agent knows of a simulated call. given: by the test; an identifier is added."""
    from rejoinder.agent.app.call import CallInfo

    info = given or CallInfo(wire="simulation")
    return info if info.id else replace(info, id="simulated")


class Talk:
    """One conversation. Plan its events, ``run`` it, then inspect the log and the models.

    lines, replies: the words of the user and of the agent. more: models (stt, llm, tts, vad, turn), their
        ``specs``, a line, an ``Agent``, the ``info`` of its call, the ``control`` of its line, ``real_time``
        for its code (see ``SimulatedHost``), and options: a whole ``Options``, or single fields.
    call: the agent's view of the call, where there is an agent.
    opened: whether the session has begun.
    log: (loop time in seconds, event), in order. floors: (loop time in seconds, floor), at each change.
    fillers: (loop time in seconds, words) of each filler such as "One moment."
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
        given: Options | None = more.pop("options", None)
        more.setdefault("endpointing", SCENARIO_ENDPOINTING)  # the scenarios must not depend on the defaults
        agent: Agent[Any, Any] | None = more.pop("agent", None)
        real_time = more.pop("real_time", False)
        self._host = simulated_host(agent, real_time) if agent else None
        self._info: CallInfo | None = more.pop("info", None)
        self._control: CallControl | None = more.pop("control", None)
        self._agent: AgentCall | None = None
        self.call: Call[Any, Any]
        self.options = given or Options(instructions="", **more)
        self.ear = SimulatedPlayback(self.options.holds_audio, self.options.interrupt_response)
        self.log: list[tuple[float, Event]] = []
        self.floors: list[tuple[float, Floor]] = []
        self.fillers: list[tuple[float, str]] = []
        self._filled = -FILLER_GAP_S
        self.session: Session
        self.opened = False
        self._sound: dict[int, bytes] = {}  # of each chunk of the microphone that is not silent
        self._acts: list[tuple[float, Act]] = []

    def types(self, text: str) -> None:
        """Type words now, as a turn of the caller, and request an answer."""
        self.session.add_text(text)
        if self._agent:
            self._agent.typed(self.session, text)
        self.session.respond()

    def says(self, seconds: float, at: float, sound: bytes = SPEECH_CHUNK) -> None:
        """Plan sound from loop time ``at``, for ``seconds``. sound: one chunk, which repeats."""
        first, end = (ceil((time - 1e-9) / CHUNK_SECONDS) for time in (at, at + seconds))
        for chunk in range(max(0, first), end):
            self._sound.setdefault(chunk, sound)

    def does(self, act: Act, at: float) -> None:
        """Plan a call of ``act`` with the session at loop time ``at``."""
        self._acts.append((at, act))

    def run(self, until: float, microphone: bool = True, rest: float | None = None) -> Talk:
        """Hold the conversation until loop time ``until``, close it, and check its invariants.

        rest: seconds after which a conversation at rest ends earlier; None for no earlier end. At rest,
        nothing that was planned is to come, neither side speaks, and no answer or tool is awaited.
        """
        virtual_clock.run(self.converse(lambda: self._script(until, rest), microphone))
        self.check()
        return self

    async def converse(self, script: Callable[[], Awaitable[None]], microphone: bool = True) -> None:
        """Hold the conversation while its script runs. Cancelling ends it."""
        try:
            await self._hold(script, microphone)
        except BaseExceptionGroup as group:
            raise first_error(group) from group

    async def _hold(self, script: Callable[[], Awaitable[None]], microphone: bool) -> None:
        if self._host is None:
            await self._converse(script, microphone)
            return
        loop, reason = asyncio.get_running_loop(), "the caller has left"
        async with self._host.running():
            for name in ("", *self._host.models):  # a test may have set others
                self._host.variants.setdefault(name, self._models())
            self._agent = await self._host.answer(simulated_info(self._info), self.options)
            self._agent.control = self._control or self._agent.control
            self.call, self.options, begun = self._agent.call, self._agent.options(), loop.time()
            try:
                await self._converse(script, microphone)
            except BaseExceptionGroup as group:
                if not isinstance(over := first_error(group), CallOver):
                    raise
                reason = str(over)
            finally:
                self.call = self._agent.call  # of the agent that has it at the end
                self._agent.end(reason, loop.time() - begun)

    async def _converse(self, script: Callable[[], Awaitable[None]], microphone: bool) -> None:
        models = self._host.variants[self.call.models] if self._host else self._models()
        async with asyncio.TaskGroup() as tasks, open_session(models, self.options) as session:
            self.session, self.opened = session, True
            tasks.create_task(self._note(session), name="client")
            hosting = tasks.create_task(self._agent.run(session), name="agent") if self._agent else None
            speaking = tasks.create_task(self._speak(), name="microphone") if microphone else None
            await script()
            self.look()
            for task in (speaking, hosting):
                if task:
                    task.cancel()

    def _models(self) -> Models:
        models = (self.vad, self.stt, self.llm, self.tts, self.turn_model)
        return Models(*models, self.load_shedder, self.specs)

    async def _script(self, until: float, rest: float | None) -> None:
        for at, act in sorted(self._acts, key=lambda planned: planned[0]):
            await sleep_until(at)
            if (doing := act(self.session)) is not None:
                await doing
        if rest is not None:
            await self._rest(until, rest)
        else:
            await sleep_until(until)

    async def _rest(self, until: float, seconds: float) -> None:
        """Wait until nothing happens for ``seconds``, but not longer than until loop time ``until``."""
        loop = asyncio.get_running_loop()
        await sleep_until(min(until, CHUNK_SECONDS * (1 + max(self._sound, default=0))))
        since = loop.time()
        while loop.time() < min(until, since + seconds):
            await asyncio.sleep(CHUNK_SECONDS)
            if not (self.session.at_rest and self.session.idle) or self.working:
                since = loop.time()

    async def _speak(self) -> None:
        tick, way = 0, self.line.way("up")
        while True:
            await sleep_until(way.arrival((tick + 1) * CHUNK_SECONDS))
            heard = self._sound.get(tick, SILENT_CHUNK)
            tick += 1
            await self.session.hear(self._agent.hear(heard) if self._agent else heard)
            self.look()

    async def _note(self, session: Session) -> None:
        loop, way, back = asyncio.get_running_loop(), self.line.way("down"), self.line.way("back")
        async for event in session.events:
            self.log.append((loop.time(), event))
            self.look()
            if isinstance(event, ReplyAudio):
                self._note_filler(session, event.turn, loop.time())
            if self._agent is not None and self._agent.take(session, event):
                continue
            self.ear.yields = session.options.interrupt_response  # an agent may change it
            if (cut := self.ear.take(event, way.arrival(loop.time()))) and self.line.delay:
                heard = cut.played_ms / 1000.0  # the agent's estimate ignores the delay of the line
                loop.call_at(back.arrival(cut.at / CLIENT_RATE), self._truncate, int(cut.item), heard)

    def _note_filler(self, session: Session, turn: int, now: float) -> None:
        reply = session.reply
        if reply is None or reply.id != turn or not (filler := reply.output.filler):
            return
        goes_on = self.fillers and self.fillers[-1][1] == filler[0] and now < self._filled + FILLER_GAP_S
        if not goes_on:  # else its reply has called a tool, and the next reply goes on with it
            self.fillers.append((now, filler[0]))
        self._filled = now

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

    @property
    def tools_called(self) -> list[ToolUse]:
        """All calls of the agent's tools, in order."""
        return self._host.tools_called if self._host else []

    @property
    def failures(self) -> list[CodeFailure]:
        """The exceptions of the agent's code, in order; the call went on after them."""
        return self._host.failures if self._host else []

    @property
    def working(self) -> bool:
        """Whether the agent has a tool at work, or an event to take."""
        return self._host is not None and (self._host.working or len(self.session.events) > 0)

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
        return timeline(self.log, [line for use in self.tools_called for line in use.lines()])

    def longest_silence(self) -> float:
        """Return the longest wait of the user for the agent's next audio, in seconds (``Silence``)."""
        silence = Silence()
        for at, event in self.log:
            if isinstance(event, ReplyAudio):
                silence.audio.append((at, event.chunk))
            else:
                silence.take(event, at, int(at * RATE))
        return silence.longest

    def heard(self, turn: int, at: float) -> str:
        """Return the words of a reply that the client has played by loop time ``at``."""
        return self.ear.text(turn, at)


async def sleep_until(at: float) -> None:
    """Wait until a loop time. If it has passed, return without yielding to other tasks.

    Cancelling ends the wait, and changes nothing else.
    """
    if (left := at - asyncio.get_running_loop().time()) > 0:
        await asyncio.sleep(left)
