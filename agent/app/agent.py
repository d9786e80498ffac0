"""An agent: what it says, what it can do, and what the integrator's program does on each call."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import AsyncIterator, Callable, Mapping, MutableMapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, overload

from rejoinder.agent.app.call import Call, CallInfo, Resources, State
from rejoinder.agent.app.fillers import FILLER_AFTER_S, USUAL_FILLERS
from rejoinder.agent.app.functions.signatures import check_hook
from rejoinder.agent.app.memory.memory import Memory
from rejoinder.agent.app.tool import TOOL_TIMEOUT_S, Successor, Tool, tool_of
from rejoinder.models.llm.spec_list import joined
from rejoinder.pipeline import Guard, Options
from rejoinder.pipeline.context.summaries import Compress, summarise

if TYPE_CHECKING:
    from rejoinder.agent.app.mcp.server import McpServer

Function: TypeAlias = Callable[..., Any]
Hook = TypeVar("Hook", bound=Callable[..., Any])
"""A function or coroutine function, as decorated."""
Lifespan: TypeAlias = Callable[[], AbstractAsyncContextManager[Resources]]


@asynccontextmanager
async def _nothing() -> AsyncIterator[None]:
    yield None


@dataclass(slots=True)
class Hooks:
    """The hooks of an agent, in the order in which they were added. ``check_hook`` has checked them."""

    on_call: list[Function] = field(default_factory=list)
    on_answered_by: list[Function] = field(default_factory=list)
    on_turn: list[Function] = field(default_factory=list)
    on_reply: list[Function] = field(default_factory=list)
    on_end: list[Function] = field(default_factory=list)
    context: list[Function] = field(default_factory=list)
    guard: list[Function] = field(default_factory=list)


class Agent(Successor, Generic[State, Resources]):
    """The agent of an integrator. One object serves all calls; ``Call`` holds what belongs to one.

    instructions: the system prompt.
    greeting: the exact first words of each call, "" for none.
    state: makes the integrator's state of a new call, such as a dataclass.
    lifespan: opens what all calls share, such as a database, for as long as the server runs;
        ``call.resources`` is what it yields.
    tools: functions that the language model may call; ``Agent.tool`` adds more.
    models: sets of other models that the server loads, by a name that ``call.models`` chooses:
        ``{"german": {"stt": "whisper:base@de"}}``; the roles are vad, turn, stt, llm and tts. ``llm`` may be
        a list: where the first one fails, the next one answers.
    mcp: servers whose tools the language model may call, too; they are connected while the server runs.
    agents: those to which it can hand a call: a tool returns one, or ``Call.hand_to`` gets it.
    name: for the log.
    compress: makes a summary of the older part of a long conversation, while neither side has the floor:
        ``summarise`` by the call's own language model, ``summarise_with(llm)`` by another one, ``condensed``
        without a model, or a function of your own. None for no summaries: the older part is dropped.
    memory: keeps the facts that ``call.remember`` gets about a caller, for the next calls; None for none.
    fillers: what the agent says, in turn, while the caller waits for an answer; () for nothing.
    filler_after_s: seconds of silence after which it says one, sooner while a tool runs
        (``agent/app/fillers.py`` has the rules).

    guard: what each clause of the language model must pass before it is heard; ``guardrails`` makes one. None
        for the server's. ``Agent.guard`` adds functions of your own.

    Tools and hooks that are coroutine functions run on the event loop, which all calls share. Others run in
    threads.

    Raises TypeError for an argument of a wrong type and for a function that cannot be a tool or a hook, and
    ValueError for two MCP servers of one name.
    """

    def __init__(
        self,
        instructions: str = "",
        *,
        greeting: str = "",
        state: Callable[[], State] | None = None,
        lifespan: Lifespan[Resources] | None = None,
        tools: Sequence[Function] = (),
        models: Mapping[str, Mapping[str, str | list[str]]] | None = None,
        mcp: Sequence[McpServer] = (),
        agents: Sequence[Agent[Any, Any]] = (),
        name: str = "",
        compress: Compress | None = summarise,
        memory: Memory | None = None,
        fillers: Sequence[str] = USUAL_FILLERS,
        filler_after_s: float = FILLER_AFTER_S,
        guard: Guard | None = None,
    ) -> None:
        if isinstance(fillers, str):
            raise TypeError(f"fillers is a text: it must be a sequence of texts, such as ({fillers!r},)")
        _check({"instructions": instructions, "greeting": greeting}, state, lifespan)
        self.instructions = instructions
        self.greeting = greeting
        self.tools: dict[str, Tool] = {}
        self.lifespan: Lifespan[Any] = lifespan or _nothing
        self.models: dict[str, Mapping[str, str]] = {
            name: {role: joined(spec) for role, spec in given.items()}
            for name, given in (models or {}).items()
        }
        self.mcp = list(mcp)
        self.agents = list(agents)
        self.name = name or self.name
        names = [server.name for server in self.mcp]
        if twice := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"several MCP servers have the name {min(twice)}: give them others, by name=")
        self.fillers = tuple(fillers)
        self.filler_after_s = filler_after_s
        self._state = state
        self.compress = compress
        self.memory = memory
        self.given_guard = guard
        self.hooks = Hooks()
        for function in tools:
            self.tool(function)

    @overload
    def tool(self, function: Function) -> Function: ...

    @overload
    def tool(
        self,
        *,
        name: str = "",
        timeout_s: float = TOOL_TIMEOUT_S,
        background: bool = False,
        durable: bool = False,
    ) -> Callable[[Function], Function]: ...

    def tool(
        self,
        function: Function | None = None,
        *,
        name: str = "",
        timeout_s: float = TOOL_TIMEOUT_S,
        background: bool = False,
        durable: bool = False,
    ) -> Function | Callable[[Function], Function]:
        """Let the language model call a function; use it as a decorator, with or without options.

        The options are those of ``Tool``. Raises TypeError for a function that cannot be a tool, and
        ValueError for a second tool of the same name.
        """

        def add(given: Function) -> Function:
            made = tool_of(given, name=name, timeout_s=timeout_s, background=background, durable=durable)
            if made.name in self.tools:
                raise ValueError(f"there is a tool {made.name} already: give this one another name")
            self.tools[made.name] = made
            return given

        return add if function is None else add(function)

    def context(self, hook: Hook) -> Hook:
        """Let ``hook(call, words)`` return what the model should know to answer these words; a decorator.

        It runs on partial transcripts, so that its result is there when the turn ends; it is cancelled and
        started again when the words change. So it may read and must not change anything. The reply waits
        for it at most ``Options.context_wait_s``. The result goes into the prompt of that turn only, in front
        of the words. A synchronous function runs in a thread, one at a time for each call.
        """
        check_hook(hook, "context", "call", "words")
        self.hooks.context.append(hook)
        return hook

    def guard(self, judge: Hook) -> Hook:
        """Let ``judge(call, text)`` refuse a clause before the caller hears it; a decorator.

        text: the last 1,000 characters of the reply, up to the end of the clause. It returns why the clause
        is refused, "" or None to let it pass. It runs while the clause is synthesised, and at most
        ``Guard.wait_s``. It runs on guesses, too, which may never be heard. So it may read, and must not
        change anything. A plain function runs in a thread.
        """
        check_hook(judge, "guard", "call", "text")
        self.hooks.guard.append(judge)
        return judge

    @property
    def reachable(self) -> list[Agent[Any, Any]]:
        """This agent, and those to which it and they can hand a call, each of them once."""
        found: list[Agent[Any, Any]] = [self]
        for one in found:
            found += [other for other in one.agents if other not in found]
        return found

    def on_call(self, hook: Hook) -> Hook:
        """Run ``hook(call)`` before a call is answered; a decorator. It may change the call or refuse it.

        The call is refused if a hook raises an exception, or if the hooks take longer than 8 seconds.
        """
        check_hook(hook, "on_call", "call")
        self.hooks.on_call.append(hook)
        return hook

    def on_answered_by(self, hook: Hook) -> Hook:
        """Run ``hook(call, answer)`` when it is certain who answered an outgoing call; a decorator.

        answer: a ``CallAnswer``. Only calls that ``Call.detect_machine`` has prepared run it. It runs again
        if a person turns out to be a machine. With a machine the agent is silent until the hook ends.
        """
        check_hook(hook, "on_answered_by", "call", "answer")
        self.hooks.on_answered_by.append(hook)
        return hook

    def on_turn(self, hook: Hook) -> Hook:
        """Run ``hook(call, words)`` after each turn of the caller; a decorator.

        words: what the caller said, a ``TurnWords``: ``words.injection`` names a likely prompt injection. The
        reply does not wait for the hook.
        """
        check_hook(hook, "on_turn", "call", "words")
        self.hooks.on_turn.append(hook)
        return hook

    def on_reply(self, hook: Hook) -> Hook:
        """Run ``hook(call, words)`` after each reply; a decorator. It may check the words and end the call.

        words: what the caller was sent of the reply; of one that was cut off, what was played. The
        conversation does not wait for the hook.
        """
        check_hook(hook, "on_reply", "call", "words")
        self.hooks.on_reply.append(hook)
        return hook

    def on_end(self, hook: Hook) -> Hook:
        """Run ``hook(call)`` after the call; a decorator.

        ``call.transcript``, ``call.seconds`` and ``call.ended`` are final then.
        """
        check_hook(hook, "on_end", "call")
        self.hooks.on_end.append(hook)
        return hook

    def new_call(
        self, info: CallInfo, options: Options, resources: Resources, others: MutableMapping[str, Tool]
    ) -> Call[State, Resources]:
        """Return a call that has not begun, with the integrator's state.

        options: the server's options of a session; the agent's words replace theirs. others: tools that may
        change during the call; a function of the same name replaces one.
        """
        instructions, greeting = self.instructions or options.instructions, self.greeting or options.greeting
        server_guard = options.guard
        options = replace(
            options,
            instructions=instructions,
            greeting=greeting,
            compress=self.compress,
            guard=self.given_guard or server_guard,
        )
        state: Any = self._state() if self._state else None
        call = Call(info, state, resources, options, ChainMap(dict(self.tools), others), self)
        call.fillers, call.filler_after_s = self.fillers, self.filler_after_s
        call.server_guard = server_guard
        return call


def _check(texts: Mapping[str, object], state: object, lifespan: object) -> None:
    """Raise TypeError for an argument of ``Agent`` that has a wrong type."""
    for name, text in texts.items():
        if not isinstance(text, str):
            raise TypeError(f"{name} is of type {type(text).__name__}: it must be text")
    if state is not None and not callable(state):
        kind = type(state).__name__
        raise TypeError(f"state is one {kind}, but each call needs its own: give the class, state={kind}")
    if hasattr(lifespan, "__aenter__"):
        raise TypeError("lifespan was called already: give the function itself, without parentheses")
