"""Runs an agent in one call: its tools, its hooks, and the end of the call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from rejoinder.agent.app.agent import Agent
from rejoinder.agent.app.call import Call
from rejoinder.agent.app.call_actions import HEARD_CHECK_S, CallActions
from rejoinder.agent.app.control import CallControl, NoControl
from rejoinder.agent.app.fillers import Fillers
from rejoinder.agent.app.filling import Filling
from rejoinder.agent.app.guarding.clause_guard import clause_guard
from rejoinder.agent.app.hand_overs import HandOvers
from rejoinder.agent.app.runs import Action, CancelRun, InsertResult, TellResults, ToolRuns
from rejoinder.agent.app.tool import ToolError, Untold
from rejoinder.agent.recording.recorder import AudioRecorder
from rejoinder.pipeline import (
    CallOver,
    EndOfTurn,
    Entry,
    Event,
    NothingSaid,
    Options,
    PartialTranscript,
    ReplyCalled,
    ReplyDone,
    ReplyRequest,
    ReplyStarted,
    ReplyText,
    Session,
    SpeechStarted,
    ToolCall,
    Tools,
    Transcribed,
)

if TYPE_CHECKING:
    from rejoinder.agent.app.host import AgentHost

FAILED = (
    "The tool failed, for a reason that only the operator can read. Tell the caller that it did not work."
)
"""The result of a tool that raised an exception. Its text may hold secrets, so the model does not get it."""
TAKEN_OVER = "You have the call now. What was said before, another agent has said. Go on with the call."
"""The result of a tool that hands the call to another agent, for that agent's language model."""
LATE_RESULT = "(A tool has returned its result meanwhile. Tell the caller what matters of it.)"
"""Ends the prompt where a result came late, and stands above the agent's own words: it would look old."""
ANSWERING = "answering"
"""Name of the task that finds out who answered."""


class AgentCall:
    """The agent's side of one call. host: runs what outlives the call, and the hooks.

    control: what the call's line can do beside carrying audio; set it before ``run``. returned: called at the
    end of each tool's run with the id of its call, whether it failed, and its result. recorded: waits until a
    call is in the store of conversations, before its tool runs; None for no store. recorder: of the call,
    None for none; set it before ``run``, too.
    """

    def __init__(self, call: Call[Any, Any], host: AgentHost) -> None:
        self.control: CallControl = NoControl()
        self.recorded: Callable[[], Awaitable[None]] | None = None
        self.recorder: AudioRecorder | None = None
        self.returned: Callable[[str, bool, str], None] = lambda id, failed, result: None
        self._host = host
        self._runs = ToolRuns()
        self._filling = Filling(Fillers(call.fillers, call.filler_after_s), self._runs)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._actions: CallActions | None = None
        self._untold = False
        self._over = False
        self._given: Options | None = None
        self._agents = HandOvers(call, host)
        self._out_of_band: set[int] = set()

    @property
    def call(self) -> Call[Any, Any]:
        """The ``Call`` of the agent that has the call now."""
        return self._agents.call

    def options(self) -> Options:
        """Return the options of the call's session, with the agent's tools. The client's tools stay."""
        options, context = self.call.options, self._agents.knowledge or self.call.options.context
        instructions = self.call.caller_facts.added_to(options.instructions)
        tools = self._with_tools(options.tools)
        guard = clause_guard(self.call, self._host.run_guard)
        options = replace(options, instructions=instructions, tools=tools, context=context, guard=guard)
        return self.call.answering.adapt(options) if self.call.answering else options

    def configured(self, options: Options) -> Options:
        """Return the options of a session whose client has changed them; ``call.options`` changes, too.

        Instructions that the client has not changed stay those of the agent that has the call.
        """
        given, self._given = self._given, options
        if given and given.instructions == options.instructions:
            options = replace(options, instructions=self.call.instructions)
        self.call.adopt(options)
        return self._current_options()

    def request(self, request: ReplyRequest | None) -> ReplyRequest | None:
        """Return a client's request for a reply, with the agent's tools and what is known of the caller.

        An out-of-band reply has the client's tools only: results of the agent's enter the conversation.
        """
        if request is None:
            return None
        instructions, tools = request.instructions, request.tools
        if not request.remembered:
            tools = self.call.options.tools if tools is None else tools
        return replace(
            request,
            instructions=instructions and self.call.caller_facts.added_to(instructions),
            tools=tools and self._with_tools(tools) if request.remembered else tools,
        )

    def _with_tools(self, tools: Tools) -> Tools:
        functions = [tool.definition for tool in self.call.tools.values()]
        return replace(tools, functions=[*functions, *tools.functions]) if functions else tools

    def hear(self, pcm: bytes) -> bytes:
        """Return the caller's audio as the agent hears it: silence while the caller is on hold."""
        return bytes(len(pcm)) if self._actions and self._actions.held else pcm

    async def run(self, session: Session) -> None:
        """Run the agent's tools until cancelled. Raises CallOver once the agent has hung up.

        Cancelling cancels the tools, except the durable ones.
        """
        loop = asyncio.get_running_loop()
        self._host.begun(self.call)
        configured = partial(self._configure, session)
        self._actions = actions = CallActions(
            session, self.control, self._changed.set, lambda now: self._filling.idle(session, now)
        )
        actions.recorder = self.recorder
        self._connect(session, actions)
        if answering := self.call.answering:
            answering.connect(session, configured, self.call.info.id)
            hooks = partial(self._host.answered, self.call)
            self._tasks[ANSWERING] = self._host.spawn(answering.run(self.call.greeting, hooks), ANSWERING)
        try:
            while True:
                due = min(filter(None, (self._runs.due, self._filling.due)), default=None)
                if actions.leaving:
                    due = loop.time() + HEARD_CHECK_S
                with suppress(TimeoutError):
                    async with asyncio.timeout_at(due):
                        await self._changed.wait()
                self._changed.clear()
                self._act(session, self._runs.passed(loop.time()))
                if actions.quiet:
                    self._filling.postpone(loop.time())
                else:
                    self._filling.passed(session, loop.time())
                self._filling.settle(session)
                if self._untold and not actions.held:
                    self._act(session, [TellResults()])
                if actions.left:
                    raise CallOver(actions.leaving)
                if actions.leaving and not self._runs.running and actions.heard(loop.time()):
                    await actions.end()
                    raise CallOver(actions.leaving)
        finally:
            self._over = True
            for id, task in self._tasks.items():
                if id not in self._runs.durable:
                    task.cancel()

    def _configure(self, session: Session) -> None:
        session.configure(self._current_options())

    def _current_options(self) -> Options:
        """Return the options of the call's session now: nothing stops the announcement of a recording."""
        return self.recorder.configured(self.options()) if self.recorder else self.options()

    def take(self, session: Session, happened: Event) -> bool:
        """Take an event of the session; return whether it is the agent's own, which clients do not see.

        The events of out-of-band replies are the client's.
        """
        if self._is_out_of_band(happened):
            return False
        if self.call.answering:
            self.call.answering.take(happened)
        due, waits = self._filling.due, self._filling.take(session, happened)
        if self._filling.due != due:
            self._changed.set()
        match happened:
            case ReplyCalled(turn, asked) if asked.name not in self._of_client(self._agents.call_of(turn)):
                self._begin(session, turn, asked)
                return True
            case ReplyStarted(reply) if not waits:
                self._runs.reply_started()
                self._agents.reply_started(reply)
            case ReplyDone(turn, heard=heard):
                if heard:
                    self._host.replied(self._agents.call_of(turn), heard)
                self._act(session, self._runs.reply_done())
            case SpeechStarted():
                self._runs.user_started()
            case PartialTranscript(text) | Transcribed(text) if text:
                self._act(session, self._runs.user_words())
            case EndOfTurn(text):
                self._act(session, self._runs.user_done(words=True))
                self._host.turned(self.call, text)
            case NothingSaid():
                self._act(session, self._runs.user_done(words=False))
        return False

    def _is_out_of_band(self, happened: Event) -> bool:
        match happened:
            case ReplyStarted(turn, out_of_band=True):
                self._out_of_band.add(turn)
            case ReplyDone(turn) if turn in self._out_of_band:
                self._out_of_band.discard(turn)
            case ReplyText(turn) | ReplyCalled(turn):
                return turn in self._out_of_band
            case _:
                return False
        return True

    def typed(self, session: Session, words: str) -> None:
        """Take words that the caller has typed: they count as spoken ones."""
        self._act(session, self._runs.user_words())
        self._host.turned(self.call, words)

    async def hang_up_line(self) -> None:
        """End the caller's line after a call that has reached its longest duration.

        Cancelling may leave it open.
        """
        if self._actions:
            await self._actions.end()

    def end(self, reason: str, seconds: float) -> None:
        """Take the end of the call. reason: why it ended. seconds: how long it lasted."""
        self._host.ended(self._agents.calls, reason, seconds)

    def _of_client(self, call: Call[Any, Any]) -> set[str]:
        """Return the names of the client's tools. Unknown names are the agent's: they get an error."""
        return {one["function"]["name"] for one in call.options.tools.functions} - call.tools.keys()

    # --- which agent has the call -----------------------------------------------------------------------

    def _connect(self, session: Session, actions: CallActions) -> None:
        async def hand_to(other: Agent[Any, Any], state: Any) -> None:
            await self._hand_to(session, other, state)

        *earlier, call = self._agents.calls
        call.connect(session, partial(self._configure, session), actions, hand_to)
        for one in earlier:
            one.connect(session, lambda: None, actions, hand_to)

    async def _hand_to(self, session: Session, other: Agent[Any, Any], state: Any = None) -> None:
        """Let another agent go on with the call; see ``Call.hand_to``."""
        new = await self._host.hand_over(self.call, other, state)
        if self._over or self._actions is None:
            return
        models = self._host.variants[new.models] if new.models != self.call.models else None
        self._agents.take_over(new, lambda: session.hand_over(self._current_options(), models))
        self._connect(session, self._actions)
        self._filling.returned(session)
        self._filling = Filling(Fillers(new.fillers, new.filler_after_s), self._runs)
        self._host.begun(new)

    # --- its tools --------------------------------------------------------------------------------------

    def _begin(self, session: Session, reply: int, asked: ToolCall) -> None:
        call = self._agents.call_of(reply)
        tool = call.tools.get(asked.name)
        background, durable = (tool.background, tool.durable) if tool else (False, False)
        now = asyncio.get_running_loop().time()
        if self._runs.called(asked.id, reply, now, background, durable):
            running = self._host.spawn(self._run(session, call, asked), f"tool-{asked.name}")
            self._tasks[asked.id] = running
            running.add_done_callback(lambda _: self._tasks.pop(asked.id, None))
            self._changed.set()

    async def _run(self, session: Session, call: Call[Any, Any], asked: ToolCall) -> None:
        wrong = False
        try:
            if self.recorded:
                await self.recorded()
            result = await self._host.run_tool(call, asked)
            if isinstance(result, Agent):
                await self._hand_to(session, result)
            text = result if isinstance(result, str) else TAKEN_OVER
        except ToolError as error:
            text, wrong = str(error), True
        except Exception as error:
            self._host.failed(call.info, f"the tool {asked.name}", error)
            text = FAILED
        self.returned(asked.id, wrong or text == FAILED, text)
        self._act(session, self._runs.returned(asked.id, text, not isinstance(text, Untold), wrong))
        self._changed.set()

    def _act(self, session: Session, actions: list[Action]) -> None:
        if self._over:  # a durable run may end after the call
            return
        for action in actions:
            match action:
                case InsertResult(id, text):
                    session.insert(Entry("tool", text, ("item", f"result-{id}"), call=id), ("call", id))
                case CancelRun(id):
                    if running := self._tasks.get(id):
                        running.cancel()
                case TellResults(may_call):
                    self._untold = self._actions is not None and self._actions.held
                    if self._untold or (self._actions and self._actions.leaving):
                        continue
                    words = self._agents.first_words
                    if words is not None:  # the reply that a filler has begun is still the other agent's
                        self._filling.returned(session)
                        session.respond(ReplyRequest(words=words) if words else None)
                    elif not may_call:  # a reply that a filler has begun may call tools
                        self._filling.returned(session)
                        session.respond(ReplyRequest(tools=Tools()))
                    elif self._filling.tell(session, cue := LATE_RESULT * session.history.ends_with_agent):
                        self._runs.reply_started()
                    else:
                        session.respond(ReplyRequest(cue=cue))
