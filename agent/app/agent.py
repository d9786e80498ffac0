"""An agent: what it says, what its language model may call, and what a program does on each call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar, overload

from rejoinder.agent.app.call import Resources, State, check_text
from rejoinder.agent.app.fillers import FILLER_AFTER_S, USUAL_FILLERS
from rejoinder.agent.app.functions.signatures import check_hook
from rejoinder.agent.app.tool import TOOL_TIMEOUT_S, Sequel, Tool, add_tool, tool_of
from rejoinder.agent.app.worker import Worker
from rejoinder.pipeline import Compress, Guard

Function: TypeAlias = Callable[..., Any]
Hook = TypeVar("Hook", bound=Callable[..., Any])
"""A function or coroutine function, as decorated."""
Lifespan: TypeAlias = Callable[[], AbstractAsyncContextManager[Resources]]


@dataclass(slots=True)
class Hooks:
    """The hooks of an agent, in the order in which they were added. ``check_hook`` has checked them."""

    on_call: list[Function] = field(default_factory=list)
    on_turn: list[Function] = field(default_factory=list)
    on_end: list[Function] = field(default_factory=list)
    on_failure: list[Function] = field(default_factory=list)
    on_reply: list[Function] = field(default_factory=list)
    context: list[Function] = field(default_factory=list)
    guard: list[Function] = field(default_factory=list)


class Agent(Sequel, Generic[State, Resources]):
    """The agent of an integrator. One object serves all calls; ``Call`` holds what belongs to one.

    instructions: the system prompt, "" for the server's. ``{date}``, ``{tomorrow}`` and ``{time}`` become
    those at the beginning of the call.
    greeting: the exact first words of each call, "" for the server's.
    tools: functions that the language model may call; ``Agent.tool`` adds more.
    fillers: what the agent says, in turn, while the caller waits for an answer; () for nothing.
    filler_after_s: seconds of silence after which it says one, sooner while a tool runs
        (``agent/app/fillers.py`` has the rules).
    models: sets of other models that the server loads, by a name that ``call.models`` chooses:
        ``{"dutch": {"stt": "whisper:base@nl"}}``; the roles are vad, turn, stt, llm and tts.
    agents: those to which it can hand a call: a tool returns one of them. name: for the log.
    delegate: does what takes long, behind the agent, which talks on with the caller.
    guard: what each clause of the language model must pass before it is heard; ``guardrails`` makes one. None
        for the server's. ``Agent.guard`` adds functions of your own.
    compress: summarises the older part of a long call: ``summarise`` by the call's own language model,
        ``summarise_with(llm)`` by another one, ``condensed`` without a model, or a function of your own.
        None for the server's.
    state: makes the integrator's state of a new call, such as a dataclass.
    lifespan: opens what all calls share, such as a database, for as long as the server runs;
        ``call.resources`` is what it yields.

    Tools and hooks that are coroutine functions run on the event loop, which all calls share. Others run in
    threads.

    Raises TypeError for an argument of a wrong type and for a function that cannot be a tool or a hook, and
    ValueError for a second tool of the same name.
    """

    def __init__(
        self,
        instructions: str = "",
        *,
        greeting: str = "",
        tools: Sequence[Function] = (),
        fillers: Sequence[str] = USUAL_FILLERS,
        filler_after_s: float = FILLER_AFTER_S,
        models: Mapping[str, Mapping[str, str]] | None = None,
        agents: Sequence[Agent[Any, Any]] = (),
        delegate: Worker | None = None,
        guard: Guard | None = None,
        compress: Compress | None = None,
        name: str = "",
        state: Callable[[], State] | None = None,
        lifespan: Lifespan[Resources] | None = None,
    ) -> None:
        check_text("instructions", instructions)
        check_text("greeting", greeting)
        if isinstance(fillers, str):
            raise TypeError(f"fillers is a text: it must be a sequence of texts, such as ({fillers!r},)")
        if delegate is not None and not isinstance(delegate, Worker):
            raise TypeError(f"delegate needs a Worker, not {type(delegate).__name__}")
        if guard is not None and not isinstance(guard, Guard):
            raise TypeError(f"guard needs a Guard, as guardrails(...) makes it, not {type(guard).__name__}")
        _check(state, lifespan)
        self.instructions = instructions
        self.greeting = greeting
        self.tools: dict[str, Tool] = {}
        self.fillers = tuple(fillers)
        self.filler_after_s = filler_after_s
        self.models = dict(models or {})
        self.agents = list(agents)
        self.delegate = delegate
        self.given_guard = guard
        self.compress = compress
        self.name = name or "an agent"
        self.state = state
        self.lifespan = lifespan
        self.hooks = Hooks()
        if delegate:
            add_tool(self.tools, delegate.asked)
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
        keep_on_interrupt: bool = False,
    ) -> Callable[[Function], Function]: ...

    def tool(
        self,
        function: Function | None = None,
        *,
        name: str = "",
        timeout_s: float = TOOL_TIMEOUT_S,
        background: bool = False,
        keep_on_interrupt: bool = False,
    ) -> Function | Callable[[Function], Function]:
        """Let the language model call a function; use it as a decorator, with or without options.

        The options are those of ``Tool``. Raises TypeError for a function that cannot be a tool, and
        ValueError for a second tool of the same name.
        """

        def add(given: Function) -> Function:
            made = tool_of(
                given,
                name=name,
                timeout_s=timeout_s,
                background=background,
                keep_on_interrupt=keep_on_interrupt,
            )
            add_tool(self.tools, made)
            return given

        return add if function is None else add(function)

    @property
    def reachable(self) -> list[Agent[Any, Any]]:
        """This agent, and those to which it and they can hand a call, each of them once."""
        found: list[Agent[Any, Any]] = [self]
        for one in found:
            found += [other for other in one.agents if other not in found]
        return found

    def on_call(self, hook: Hook) -> Hook:
        """Run ``hook(call)`` before a call is answered; a decorator. It may change the call or refuse it.

        The call is refused if a hook raises an exception, or if the hooks take longer than 8 seconds. Raises
        TypeError for a function that cannot be called so.
        """
        check_hook(hook, "on_call", "call")
        self.hooks.on_call.append(hook)
        return hook

    def on_turn(self, hook: Hook) -> Hook:
        """Run ``hook(call, words)`` after each turn of the caller; a decorator.

        words: what the caller said or typed, a ``TurnWords``. The reply does not wait for the hook. Raises
        TypeError like ``on_call``.
        """
        check_hook(hook, "on_turn", "call", "words")
        self.hooks.on_turn.append(hook)
        return hook

    def context(self, hook: Hook) -> Hook:
        """Retrieve by ``hook(call, words)`` what the language model should know to answer; a decorator.

        words: what the caller has said so far. The hook runs on partial transcripts already, before the turn
        is over and often for nothing: it may read, and must not change anything. It returns text, a list of
        passages, or None. The result stands in front of the caller's words in the prompt of this turn, cut
        at 2,000 characters. A reply waits for it for at most ``Options.context_wait_s``. Raises TypeError
        like ``on_call``.
        """
        check_hook(hook, "context", "call", "words")
        self.hooks.context.append(hook)
        return hook

    def guard(self, judge: Hook) -> Hook:
        """Let ``judge(call, text)`` refuse a clause before the caller hears it; a decorator.

        text: the last 1,000 characters of the reply, up to the end of the clause. It returns why the clause
        is refused, "" or None to let it pass. It runs while the clause is synthesised, and at most
        ``Guard.wait_s``. It runs on guesses, too, which may never be heard. So it may read, and must not
        change anything. A plain function runs in a thread. Raises TypeError like ``on_call``.
        """
        check_hook(judge, "guard", "call", "text")
        self.hooks.guard.append(judge)
        return judge

    def on_reply(self, hook: Hook) -> Hook:
        """Run ``hook(call, words)`` after each reply; a decorator. It may check the words and end the call.

        words: what the caller was sent of the reply; of one that was cut off, what was played. The
        conversation does not wait for the hook. Raises TypeError like ``on_call``.
        """
        check_hook(hook, "on_reply", "call", "words")
        self.hooks.on_reply.append(hook)
        return hook

    def on_failure(self, hook: Hook) -> Hook:
        """Run ``hook(call, failures)`` after each reply that failed, mostly with an apology; a decorator.

        failures: how many replies have failed in a row. The hook may hang up, tell an operator, or let the
        carrier transfer the call. The end of the next answer and of the call cancel a coroutine that still
        runs. Raises TypeError like ``on_call``.
        """
        check_hook(hook, "on_failure", "call", "failures")
        self.hooks.on_failure.append(hook)
        return hook

    def on_end(self, hook: Hook) -> Hook:
        """Run ``hook(call)`` after the call; a decorator.

        ``call.transcript``, ``call.seconds`` and ``call.ended`` are final then. Raises TypeError like
        ``on_call``.
        """
        check_hook(hook, "on_end", "call")
        self.hooks.on_end.append(hook)
        return hook


def _check(state: object, lifespan: object) -> None:
    """Raise TypeError for a value in place of a function that makes it."""
    if state is not None and not callable(state):
        kind = type(state).__name__
        raise TypeError(f"state is one {kind}, but each call needs its own: give the class, state={kind}")
    if hasattr(lifespan, "__aenter__"):
        raise TypeError("lifespan was called already: give the function itself, without parentheses")
