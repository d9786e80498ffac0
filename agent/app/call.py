"""One call, as an integrator's hooks and tools see it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, Protocol

from typing_extensions import TypeVar

from rejoinder.pipeline import POINTS, Message, Options, Speakers, TurnTaking, turn_taking

if TYPE_CHECKING:
    from rejoinder.agent.app.agent import Agent
    from rejoinder.agent.app.tool import Tool

State = TypeVar("State", default=Any)
Resources = TypeVar("Resources", default=Any)


class RefusedCall(Exception):
    """The agent does not take a call. The message is the reason for the caller's program."""


@dataclass(frozen=True, slots=True)
class CallInfo:
    """What is known of a call before it is answered.

    id: the call's identifier, also in the log. wire: the protocol, such as "realtime", "pcm" or "Twilio".
    caller, called: the two telephone numbers, "" if unknown.
    headers: of the HTTP request, with names in lower case. query: its parameters. Neither holds API keys.
    metadata: what the telephone carrier sends with the call, by the names of the operator.
    """

    id: str = ""
    wire: str = ""
    caller: str = ""
    called: str = ""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    query: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)


class Line(Protocol):
    """What a ``Call`` can do while it is connected."""

    async def say(self, words: str) -> None:
        """Say words; see ``Call.say``. Cancelling before they begin says nothing."""

    async def hang_up(self, say: str, reason: str) -> None:
        """End the call; see ``Call.hang_up``. Cancelling keeps the call."""

    async def record(self, announce: bool) -> None:
        """Record the call; see ``Call.record``. Cancelling stops the wait for the begin of the recording."""

    def stop_recording(self) -> None:
        """End the recording; see ``Call.stop_recording``."""

    def transcript(self) -> Sequence[Message]:
        """Return the conversation; see ``Call.transcript``."""

    def configured(self) -> None:
        """Apply the options and tools of the ``Call`` from the next reply on."""


class Call(Generic[State, Resources]):
    """One call. Hooks get it, and tools with a parameter of this type.

    Functions that run in threads may use everything here that is not a coroutine. Values of your own belong
    into ``state``.

    info: what was known when the call began. agent: the agent whose call it is. models: the name of the
    agent's set of models for this call, "" for the server's own; ``on_call`` can change it.
    state: the integrator's own, from the agent's ``state``. resources: what the agent's ``lifespan`` yielded.
    ended: why the call ended, "" until then. seconds: its duration, 0.0 until it has ended.
    """

    __slots__ = (
        "_line", "_loop", "_options", "_thread", "_tools", "_transcript", "agent", "ended", "info", "models",
        "resources", "seconds", "state",
    )  # fmt: skip

    def __init__(
        self,
        info: CallInfo,
        state: State = None,  # type: ignore[assignment]  # for an agent without state
        resources: Resources = None,  # type: ignore[assignment]  # for an agent without lifespan
        options: Options | None = None,
        tools: Mapping[str, Tool] | None = None,
        agent: Agent[Any, Any] | None = None,
    ) -> None:
        self.info = info
        self.agent = agent
        self.models = ""
        self.state = state
        self.resources = resources
        self.ended = ""
        self.seconds = 0.0
        self._options = options or Options()
        self._tools = dict(tools or {})
        self._line: Line | None = None
        self._transcript: Callable[[], Sequence[Message]] = tuple
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0

    @property
    def options(self) -> Options:
        """The options of the session, such as ``idle_s``; to change them, set a changed copy.

        A change holds from the next reply on. Raises TypeError for anything else.
        """
        return self._options

    @options.setter
    def options(self, options: Options) -> None:
        if not isinstance(options, Options):
            raise TypeError("call.options is an Options: set dataclasses.replace(call.options, ...)")
        self._options = options
        self._apply()

    @property
    def instructions(self) -> str:
        """The system prompt. Raises TypeError if it is set to other than text."""
        return self._options.instructions

    @instructions.setter
    def instructions(self, instructions: str) -> None:
        check_text("call.instructions", instructions)
        self.options = replace(self._options, instructions=instructions)

    @property
    def greeting(self) -> str:
        """The exact first words, "" for none. ``on_call`` can change them; later it is too late."""
        return self._options.greeting

    @greeting.setter
    def greeting(self, greeting: str) -> None:
        check_text("call.greeting", greeting)
        self.options = replace(self._options, greeting=greeting)

    @property
    def patience(self) -> float:
        """How likely the end of a turn must be before the agent answers (``Endpointing.patience``)."""
        return self._options.endpointing.patience

    @patience.setter
    def patience(self, patience: float) -> None:
        endpointing = replace(self._options.endpointing, patience=patience)
        self.options = replace(self._options, endpointing=endpointing)

    def take_turns(self, name: TurnTaking | None = None, speakers: Speakers | None = None) -> None:
        """End the caller's turns at an operating point from now on: eager, balanced or patient.

        It replaces ``patience``. speakers: whose speech counts from now on: the caller's ("one"), or all
        voices ("many"). None keeps what there is. Raises ValueError for another name.
        """
        endpointing = self._options.endpointing
        if name:
            longest = POINTS[name].max_wait_ms if name in POINTS else endpointing.max_wait_ms
            longest = max(longest, endpointing.min_wait_ms)  # where silence alone has decided, it may be long
            endpointing = turn_taking(name, endpointing, max_wait_ms=longest)
        endpointing = replace(endpointing, speakers=speakers) if speakers else endpointing
        self.options = replace(self._options, endpointing=endpointing)

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The agent's tools that replies may call, by name; set it to a part of them to change that."""
        return self._tools

    @tools.setter
    def tools(self, tools: Mapping[str, Tool]) -> None:
        if not isinstance(tools, Mapping) or not all(hasattr(one, "definition") for one in tools.values()):
            raise TypeError("call.tools maps names to tools: {name: call.tools[name] for name in wanted}")
        self._tools = dict(tools)
        self._apply()

    @property
    def transcript(self) -> Sequence[Message]:
        """The conversation so far, as both sides heard it, in OpenAI's chat format; empty before the call."""
        return self._transcript()

    def refuse(self, reason: str) -> None:
        """Refuse the call, in ``on_call`` only. Raises RefusedCall, and RuntimeError once it is answered."""
        if self._line or self.ended:
            raise RuntimeError("the call is answered already: use hang_up")
        raise RefusedCall(reason)

    async def say(self, words: str) -> None:
        """Say these words exactly, such as "Holding a seat." in a slow tool.

        It returns when the floor is free and the agent begins to speak, so the tool goes on meanwhile. After
        the call it does nothing. Cancelling before it returns says nothing. Raises TypeError for other than
        text.
        """
        check_text("call.say", words)
        if self._line and words.strip():
            await self._line.say(words)

    async def hang_up(self, say: str = "", reason: str = "the agent has ended the call") -> None:
        """End the call once the caller has heard the agent's last words, and ``say`` as the very last ones.

        A caller who speaks meanwhile is listened to first. Words of the caller cancel the tool that hangs up,
        unless it is kept (``keep_on_interrupt``); the call goes on then. Raises ToolError where the line
        cannot hang up. After the call it does nothing. Cancelling keeps the call. reason: for the log and the
        client.
        """
        check_text("call.hang_up", say)
        if self._line:
            await self._line.hang_up(say, reason)

    async def record(self, announce: bool = True) -> None:
        """Record the call from now on, and return once the recording has begun.

        announce: speak the setting ``recording_announcement`` first. Raises ToolError where there is no
        recording. After the call it does nothing. Cancelling stops the wait.
        """
        if self._line:
            await self._line.record(announce)

    def stop_recording(self) -> None:
        """End the recording of the call, if one runs. ``recording = "always"`` does not begin another."""
        if self._line:
            self._on_loop(self._line.stop_recording)

    def connect(self, line: Line | None) -> None:
        """Let the call reach the caller; None once it is over. Call it on the event loop."""
        self._line = line
        if line:
            self._transcript = line.transcript
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()

    def adopt(self, options: Options) -> None:
        """Take options that the client has set for its session."""
        self._options = options

    def _apply(self) -> None:
        if self._line:
            self._on_loop(self._line.configured)

    def _on_loop(self, act: Callable[[], None]) -> None:
        if self._loop is None or threading.get_ident() == self._thread:
            act()
        else:
            self._loop.call_soon_threadsafe(act)


def check_text(name: str, value: object) -> None:
    """Raise TypeError if a value is not text. name: what it is for."""
    if not isinstance(value, str):
        raise TypeError(f"{name} needs text, and this is of type {type(value).__name__}")
