"""One call, as an integrator's hooks and tools see it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path
from types import MemberDescriptorType
from typing import TYPE_CHECKING, Any, Generic

from typing_extensions import TypeVar

from rejoinder.agent.app.answering.answering import HOLD_S, Answering
from rejoinder.agent.app.answering.phrases import AnsweredBy
from rejoinder.agent.app.answering.who_answered import CallAnswer
from rejoinder.agent.app.memory.caller_facts import CallerFacts
from rejoinder.pipeline import (
    Guard,
    Message,
    Options,
    ReplyRequest,
    Session,
    Speakers,
    TurnTaking,
    turn_taking,
)

if TYPE_CHECKING:
    from rejoinder.agent.app.agent import Agent
    from rejoinder.agent.app.call_actions import CallActions
    from rejoinder.agent.app.tool import Tool

State = TypeVar("State", default=Any)
"""The integrator's own state of one call."""
Resources = TypeVar("Resources", default=Any)
"""What the agent's lifespan opened: a database, a client of another service."""


DETECTION = "amd"
"""Parameter of a call that turns answering-machine detection on. Plivo passes only letters and digits."""
DETECT = "true"
"""Its value."""
Hands = Callable[["Agent[Any, Any]", Any], Awaitable[None]]
"""Hands a call to another agent, with the state of its call, None for its own."""


@dataclass(frozen=True, slots=True)
class CallInfo:
    """What is known of a call before it is answered.

    id: the call's identifier, also in the log. wire: the protocol, such as "realtime", "pcm" or "Twilio".
    caller: the caller's number or name, "" if unknown. called: the number that was called, "" if unknown.
    headers, query: of the HTTP request that began the call; header names are in lower case.
    metadata: what the carrier sent with the call, such as Twilio's custom parameters.
    """

    id: str = ""
    wire: str = ""
    caller: str = ""
    called: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)


class RefusedCall(Exception):
    """``Call.refuse`` raises it; the caller gets its text as the reason."""


class NotConnected(RuntimeError):
    """The call is not answered yet, or is over."""


class Call(Generic[State, Resources]):
    """One call. Hooks and tools may change its attributes; a change holds from the next reply on.

    Functions that run in threads may use everything here that is not a coroutine. Values of your own belong
    into ``state``: setting an unknown attribute raises AttributeError.

    info: what was known when it began. agent: the agent whose call it is. state: the integrator's own, from
    the agent's ``state``. resources: what the agent's ``lifespan`` yielded. ended: why the call ended, ""
    until then. seconds: the call's duration, 0.0 until it has ended. models: the name of the agent's set of
    models for this call, "" for the server's own; only ``on_call`` can change it. caller_facts: what
    ``facts``, ``remember`` and ``forget`` use. answering: finds out who answered, None where nothing asks for
    that. fillers, filler_after_s: as in ``Agent``; only ``on_call`` can change them. consent: whether the
    caller agrees that the conversation is kept for training; then the trace file gets all of it.
    server_guard: the server's guard, which an agent without one of its own has after a hand-off.
    """

    __slots__ = (
        "_actions", "_configured", "_hands", "_loop", "_options", "_session", "_thread", "_tools", "agent",
        "answering", "caller_facts", "consent", "ended", "filler_after_s", "fillers", "info", "models",
        "resources", "seconds", "server_guard", "state",
    )  # fmt: skip

    def __init__(
        self,
        info: CallInfo,
        state: State,
        resources: Resources,
        options: Options,
        tools: Mapping[str, Tool],
        agent: Agent[Any, Any],
    ) -> None:
        self.info = info
        self.agent = agent
        self.state = state
        self.resources = resources
        self.models = ""
        self.caller_facts = CallerFacts()
        self.fillers: Sequence[str] = ()
        self.filler_after_s = 0.0
        self.consent = False
        self.server_guard: Guard | None = None
        self.ended = ""
        self.seconds = 0.0
        self._options = options
        self._tools = tools
        self._session: Session | None = None
        self.answering: Answering | None = None
        self._configured: Callable[[], None] = lambda: None
        self._actions: CallActions | None = None
        self._hands: Hands | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute. Raises AttributeError, with the most similar names, for one that there is not."""
        known = getattr(type(self), name, None)
        if name.startswith("__") or isinstance(known, MemberDescriptorType) or getattr(known, "fset", None):
            super().__setattr__(name, value)
            return
        if callable(known):
            raise AttributeError(f"call.{name} is a method: call it instead of setting it")
        if known is not None:
            raise AttributeError(f"call.{name} can only be read")
        names = [one for one in dir(type(self)) if not one.startswith("_")]
        near = " or ".join(f"call.{one}" for one in get_close_matches(name, names, 2))
        hint = f"Did you mean {near}? " if near else ""
        raise AttributeError(f"there is no call.{name}. {hint}Values of your own belong into call.state")

    def _on_loop(self, act: Callable[[], None]) -> None:
        """Do something on the call's event loop: at once, or soon where this is another thread."""
        if self._loop is None or threading.get_ident() == self._thread:
            act()
        else:
            self._loop.call_soon_threadsafe(act)

    @property
    def options(self) -> Options:
        """The options of the session, such as ``idle_s``; to change them, set a changed copy."""
        return self._options

    @options.setter
    def options(self, options: Options) -> None:
        if not isinstance(options, Options):
            raise TypeError("call.options is an Options: set dataclasses.replace(call.options, ...)")
        self._options = options
        self._on_loop(self._configured)

    @property
    def instructions(self) -> str:
        """The system prompt."""
        return self._options.instructions

    @instructions.setter
    def instructions(self, instructions: str) -> None:
        _check_text("instructions", instructions)
        self.options = replace(self._options, instructions=instructions)

    @property
    def greeting(self) -> str:
        """The exact first words, "" for none. Only ``on_call`` can change them in time."""
        return self._options.greeting

    @greeting.setter
    def greeting(self, greeting: str) -> None:
        _check_text("greeting", greeting)
        self.options = replace(self._options, greeting=greeting)

    @property
    def patience(self) -> float:
        """How likely the end of a turn must be before the agent answers (``Endpointing.patience``)."""
        return self._options.endpointing.patience

    @patience.setter
    def patience(self, patience: float) -> None:
        self.options = replace(
            self._options, endpointing=replace(self._options.endpointing, patience=patience)
        )

    def take_turns(self, name: TurnTaking | None = None, speakers: Speakers | None = None) -> None:
        """End the caller's turns at an operating point from now on: eager, balanced or patient.

        speakers: whose speech counts from now on: the caller's ("one"), or all voices ("many"). None keeps
        what there is. Raises ValueError for another name.
        """
        endpointing = self._options.endpointing
        endpointing = turn_taking(name, endpointing) if name else endpointing
        endpointing = replace(endpointing, speakers=speakers) if speakers else endpointing
        self.options = replace(self._options, endpointing=endpointing)

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The tools that replies may call, by name; set it to another mapping to change them."""
        return self._tools

    @tools.setter
    def tools(self, tools: Mapping[str, Tool]) -> None:
        if not isinstance(tools, Mapping) or not all(hasattr(one, "definition") for one in tools.values()):
            raise TypeError(
                "call.tools maps names to tools, such as {name: call.tools[name] for name in wanted}; "
                "@agent.tool makes a tool of a function"
            )
        self._tools = dict(tools)
        self._on_loop(self._configured)

    @property
    def transcript(self) -> Sequence[Message]:
        """The conversation so far, as both sides heard it, in OpenAI's chat format; empty before the call."""
        return self._session.history.transcript() if self._session else []

    @property
    def facts(self) -> Mapping[str, str]:
        """What is known of the caller, from earlier calls and this one; empty for an agent without memory."""
        return self.caller_facts.facts

    def remember(self, key: str, value: str) -> None:
        """Keep a fact about the caller, for their next calls; it replaces the one of the same name.

        The next call has it in its instructions. An unknown caller's facts last until the end of the call.
        Any thread may call it. Raises NoMemory if the agent has no memory, and ValueError for a name of more
        than 64 characters or a value of more than 400, or an empty one.
        """
        self.caller_facts.remember(key, value)

    def forget(self) -> None:
        """Delete all facts about the caller. Raises NoMemory if the agent has no memory."""
        self.caller_facts.forget()

    def adopt(self, options: Options) -> None:
        """Take options that the client has set for its session."""
        self._options = options

    def refresh(self) -> None:
        """Let the next reply have the tools as they are now: those of MCP servers change by themselves."""
        self._configured()

    def refuse(self, reason: str) -> None:
        """Refuse the call, in ``on_call`` only. Raises RefusedCall, and RuntimeError once it is answered."""
        if self._session is not None:
            raise RuntimeError("the call is answered already: use hang_up")
        raise RefusedCall(reason)

    def say(self, words: str) -> None:
        """Speak these words exactly. They replace what the agent says now. Raises NotConnected."""
        _check_text("say", words)
        session = self.connected
        self._on_loop(lambda: session.respond(ReplyRequest(words=words)))

    def hang_up(self, reason: str = "the agent has ended the call") -> None:
        """End the call once the caller has heard the agent's last words. Raises NotConnected."""
        self._acting.hang_up(reason)

    async def transfer(self, to: str, briefing: str = "") -> None:
        """Connect the caller with someone else, once the caller has heard the agent's last words.

        to: a telephone number, or an address that the carrier or telephone system knows.
        briefing: what the person who answers hears first (a warm transfer); "" for a blind transfer.
        The agent's part of the call is over then. Raises ToolError where the line cannot do it or nobody
        answers, and the call goes on; raises NotConnected. Cancelling before the transfer prevents it.
        """
        await self._acting.transfer(to, briefing)

    async def hand_to(self, other: Agent[Any, Any], state: Any = None) -> None:
        """Let another agent go on with the call, with its instructions and tools, from the next reply on.

        other: one of ``Agent(agents=[...])``. Its hooks for a new call run first, and it gets a ``Call`` of
        its own; this one then no longer changes what the agent does. state: of its call; otherwise it makes
        its own, or gets this one's if it makes none. Raises ToolError if it refuses the call, LookupError if
        the server does not know it, and NotConnected. Cancelling before it has taken over leaves the call
        here.
        """
        assert self.connected
        assert self._hands is not None  # ``connect`` sets both
        await self._hands(other, state)

    async def send_digits(self, digits: str) -> None:
        """Press keys, such as "1" or "42#", once the agent has spoken. Raises ToolError and NotConnected.

        Cancelling before that presses none.
        """
        await self._acting.send_digits(digits)

    async def hold(self) -> None:
        """Put the caller on hold once the agent has spoken: neither side hears the other until ``resume``.

        The caller hears music where the carrier can play it, and silence elsewhere. Raises ToolError and
        NotConnected. Cancelling leaves the call as it is.
        """
        await self._acting.hold()

    async def resume(self) -> None:
        """Take the caller off hold; the agent then says what it had to say.

        Raises ToolError and NotConnected. Cancelling takes the caller off hold all the same.
        """
        await self._acting.resume()

    async def play(self, file: str | Path, words: str = "") -> None:
        """Play an audio file in place of a reply; the caller can interrupt it.

        words: what is said in it: the history then has what the caller heard of it. Raises ToolError where it
        cannot be played, and NotConnected. Cancelling while the file is read plays nothing.
        """
        await self._acting.play(Path(file), words)

    async def record(self, announce: bool = True) -> None:
        """Record the call from now on, and return once the recording has begun.

        announce: speak the setting ``recording_announcement`` first. Raises ToolError where there is no
        recording, and NotConnected. Cancelling stops the wait.
        """
        await self._acting.record(announce)

    def stop_recording(self) -> None:
        """End the recording of the call, if one runs. Raises NotConnected."""
        self._acting.stop_recording()

    @property
    def _acting(self) -> CallActions:
        assert self.connected
        assert self._actions is not None  # ``connect`` sets both
        return self._actions

    def detect_machine(self, hold_s: float = HOLD_S) -> None:
        """Find out who answers, in ``on_call`` of an outgoing call: a person, a mailbox, a menu.

        hold_s: seconds for which the agent waits to speak while that is unknown; 0 to speak at once. Raises
        RuntimeError once the call is answered.
        """
        if self._session is not None:
            raise RuntimeError("the call is answered already: use detect_machine in on_call")
        self.answering = Answering(hold_s=hold_s)

    @property
    def answered_by(self) -> AnsweredBy | None:
        """Who answered an outgoing call, None while that is not known."""
        answer = self.answering.answer if self.answering else None
        return answer.by if answer else None

    async def who_answered(self) -> CallAnswer:
        """Wait until it is certain, or stays unknown, who answered. Raises RuntimeError without a detection.

        Cancelling changes nothing.
        """
        if self.answering is None:
            raise RuntimeError("nothing finds out who answers: use detect_machine in on_call")
        return await self.answering.wait()

    async def leave_message(self, words: str, hang_up: bool = True) -> bool:
        """Speak exactly these words after an answering machine's beep; return whether there was a beep.

        Without one, the words begin some seconds after the greeting's last word. It returns once they have
        played. hang_up: end the call then. Raises NotConnected. Cancelling stops the wait, not words that
        play.
        """
        session = self.connected
        if self.answering is None:
            self.answering = Answering(detect=False)
            self.answering.connect(session, self._configured, self.info.id)
        heard = await self.answering.leave_message(words)
        if hang_up:
            self.hang_up("left a message")
        return heard

    @property
    def connected(self) -> Session:
        """The session of a running call. Raises NotConnected."""
        if self._session is None or self.ended:
            raise NotConnected("the call is over" if self.ended else "the call is not answered yet")
        return self._session

    def connect(
        self, session: Session, configured: Callable[[], None], actions: CallActions, hands: Hands
    ) -> None:
        """Connect the call with its session.

        configured: called after a change. actions: of this call. hands: hands it to another agent.
        """
        self._session, self._configured, self._actions, self._hands = session, configured, actions, hands
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise TypeError(f"call.{name} needs text, and this is of type {type(value).__name__}")
