"""Runs an agent's tools in one call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from rejoinder.agent.app.call import Call
from rejoinder.agent.app.call_line import SAID, CallLine, RecordingControl
from rejoinder.agent.app.fillers import Fillers
from rejoinder.agent.app.filling import Filling
from rejoinder.agent.app.giving_up import Failures
from rejoinder.agent.app.guarding.clause_guard import clause_guard
from rejoinder.agent.app.hand_overs import HandOvers
from rejoinder.agent.app.runs import Action, CancelRun, InsertResult, TellResults, ToolRuns
from rejoinder.agent.app.tool import ToolError, result_of
from rejoinder.agent.app.tool_result import TOOL_FAILED, ToolResult, ToolReturned
from rejoinder.pipeline import (
    EndOfTurn,
    Endpointing,
    Event,
    NothingSaid,
    Options,
    PartialTranscript,
    ReplyAudio,
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
    TurnTraced,
)
from rejoinder.pipeline.errors import HungUp
from rejoinder.pipeline.interfaces import NO_TOOLS

if TYPE_CHECKING:
    from rejoinder.agent.app.agent import Agent
    from rejoinder.agent.app.host import AgentHost


LATE_RESULT = "(A tool has returned its result meanwhile. Tell the caller what matters of it.)"
"""Ends the prompt where a result came late: it stands above words of the agent, and would look old."""


def changed_in(own: Endpointing, before: Endpointing, after: Endpointing) -> Endpointing:
    """Return a call's own turn-taking with what its client has changed."""
    names = [field.name for field in fields(Endpointing)]
    changed = {name: getattr(after, name) for name in names if getattr(after, name) != getattr(before, name)}
    most = max(changed.get("min_wait_ms", own.min_wait_ms), changed.get("max_wait_ms", own.max_wait_ms))
    return replace(own, **(changed | {"max_wait_ms": most}))


class AgentCall:
    """The agent's side of one call. host: runs what outlives the call, and the hooks.

    recorded: waits until the conversation is in its store, before a tool runs; None where there is none.
    """

    def __init__(self, call: Call, host: AgentHost) -> None:
        self._agents = HandOvers(call)
        self._host = host
        self._runs = ToolRuns()
        self._filling = self._new_filling()
        self._knowledge = host.knowledge(call)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._changed = asyncio.Event()
        self._out_of_band: set[int] = set()
        self._of_client: set[str] = set()
        self._requested: ReplyRequest | None = None
        self._line: CallLine | None = None
        self._given = call.options
        self._failures = Failures()
        self._after_failure: asyncio.Task[None] | None = None
        self._report: Callable[[ToolReturned], None] = lambda returned: None
        self.recorded: Callable[[], Awaitable[None]] | None = None

    @property
    def call(self) -> Call:
        """The ``Call`` of the agent that has the call now."""
        return self._agents.call

    def _new_filling(self) -> Filling:
        agent = self.call.agent
        fillers = Fillers(agent.fillers, agent.filler_after_s) if agent else Fillers((), 0.0)
        return Filling(fillers, self._runs)

    def configured(self, options: Options) -> Options:
        """Return the options of a session that a client has configured, with the agent's tools in front.

        Instructions and turn-taking that the client has not changed stay those of the call, and the guard
        stays in any case: the options of the client are those at the start of the call, and the agent may
        have changed them, or another agent may have the call now.
        """
        given, self._given = self._given, options
        if given.instructions == options.instructions:
            options = replace(options, instructions=self.call.instructions)
        endpointing = changed_in(self.call.options.endpointing, given.endpointing, options.endpointing)
        options = replace(options, endpointing=endpointing)
        self.call.adopt(replace(options, guard=self.call.options.guard))
        return self._options()

    def _options(self) -> Options:
        options = self.call.options
        context = self._knowledge or options.context
        guard = clause_guard(self.call, self._host.run_guard)
        return replace(options, tools=self._with_own(options.tools), context=context, guard=guard)

    def respond(self, session: Session, request: ReplyRequest | None) -> None:
        """Start the reply that a client requests, with the agent's tools, once the agent's runs have results.

        An out-of-band reply starts at once, with the client's tools only: results of the agent's enter the
        conversation.
        """
        if request is None or request.remembered:
            if request and request.tools is not None:
                request = replace(request, tools=self._with_own(request.tools))
            if self._runs.waiting:
                self._requested = request or ReplyRequest()
                return
        session.respond(request)

    def _with_own(self, tools: Tools) -> Tools:
        own = self.call.tools
        theirs = {
            one["function"]["name"]: one for one in tools.functions if one["function"]["name"] not in own
        }
        self._of_client |= theirs.keys()  # the tools of one request are added to those of the session
        return replace(tools, functions=[*(tool.definition for tool in own.values()), *theirs.values()])

    async def run(
        self,
        session: Session,
        recorder: RecordingControl,
        playing: Callable[[], bool] = lambda: False,
        report: Callable[[ToolReturned], None] = lambda returned: None,
    ) -> None:
        """Run the agent's tools until cancelled. Raises HungUp once the agent has hung up.

        playing: whether the client has not played all audio yet, as far as it reports that. report: called
        at the end of each tool. Cancelling cancels the tools, except those that are kept.
        """
        self._report = report
        loop, configure = asyncio.get_running_loop(), partial(self._configure, session)
        line = CallLine(session, self._runs, playing, self._changed.set, configure, recorder)
        self._line = line
        self.call.connect(line)
        try:
            while True:
                with suppress(TimeoutError):
                    due = min(filter(None, (self._runs.due, self._filling.due)), default=None)
                    async with asyncio.timeout_at(due):
                        await self._changed.wait()
                self._changed.clear()
                if line.ending:
                    raise HungUp(line.ending)
                self._act(session, self._runs.passed(loop.time()))
                if not self._runs.hangs_up:
                    self._filling.passed(session, loop.time())
        finally:
            line.over = True
            for call in self._agents.calls:
                call.connect(None)
            line.wake()
            for id, task in self._tasks.items():
                if id not in self._runs.kept:
                    task.cancel()
            if self._after_failure:
                self._after_failure.cancel()

    def take(self, session: Session, happened: Event) -> bool:
        """Take an event of the session; return whether it is the agent's own, which clients do not see.

        The events of out-of-band replies are the client's.
        """
        if self._line:
            self._line.wake()
        if self._is_out_of_band(happened):
            return False
        due = self._filling.due
        self._filling.take(session, happened)
        if self._filling.due != due:
            self._changed.set()
        if isinstance(happened, ReplyCalled):
            self._failures.no_answer(happened.turn)
        match happened:
            case ReplyCalled(turn, asked) if asked.name not in self._of_client:
                self._begin(session, turn, asked)
                return True
            case ReplyStarted(turn, tag):
                self._agents.reply_started(turn)
                if tag == SAID:
                    self._failures.no_answer(turn)
                self._runs.reply_started(has_prompt=tag != SAID)
            case TurnTraced(trace) if trace.turn not in self._out_of_band:
                self._failures.traced(trace)
            case ReplyDone(turn, status, heard):
                if heard:
                    self._host.replied(self.call, heard)
                self._act(session, self._runs.reply_done())
                self._count(turn, status)
            case SpeechStarted():
                self._runs.user_started()
            case PartialTranscript(text) | Transcribed(text) if text:
                self._heard_words(session)
            case EndOfTurn(text):
                self._host.turned(self.call, text)
                self._act(session, self._runs.user_done(words=True))
            case NothingSaid():
                self._act(session, self._runs.user_done(words=False))
        return False

    def _count(self, turn: int, status: str) -> None:
        """Run the hooks after a reply that failed; the end of the next answer cancels them."""
        if (failures := self._failures.done(turn, status)) is None:
            return
        if self._after_failure:
            self._after_failure.cancel()
        self._after_failure = self._host.reply_failed(self.call, failures) if failures else None

    def _is_out_of_band(self, happened: Event) -> bool:
        match happened:
            case ReplyStarted(turn, out_of_band=True):
                self._out_of_band.add(turn)
            case ReplyDone(turn) if turn in self._out_of_band:
                self._out_of_band.discard(turn)
            case ReplyText(turn) | ReplyAudio(turn) | ReplyCalled(turn):
                return turn in self._out_of_band
            case _:
                return False
        return True

    def typed(self, session: Session, words: str) -> None:
        """Take words that the caller has typed: they count as spoken ones."""
        self._heard_words(session)
        self._host.turned(self.call, words)

    def end(self, reason: str, seconds: float) -> None:
        """Take the end of the call. reason: why it ended. seconds: how long it lasted."""
        for call in self._agents.calls:
            call.ended, call.seconds = reason or "the call is over", seconds
        self._host.ended(self._agents.calls)

    def _heard_words(self, session: Session) -> None:
        self._act(session, self._runs.user_words())
        if self._requested and not self._runs.waiting:  # the reply answers these words as well
            request, self._requested = self._requested, None
            session.respond(request)

    def _begin(self, session: Session, reply: int, asked: ToolCall) -> None:
        call = self._agents.call_of(reply)
        tool = call.tools.get(asked.name)
        background, kept = (tool.background, tool.keep_on_interrupt) if tool else (False, False)
        now = asyncio.get_running_loop().time()
        if self._runs.called(asked.id, reply, now, background, kept):
            running = self._host.spawn(self._run(session, call, asked), f"tool-{asked.name}")
            self._tasks[asked.id] = running
            running.add_done_callback(lambda _: self._tasks.pop(asked.id, None))
            self._changed.set()

    async def _run(self, session: Session, call: Call, asked: ToolCall) -> None:
        outcome, text = "cancelled", ""
        try:
            if self.recorded:
                await self.recorded()
            result = await self._host.run_tool(call, asked)
            if result.successor:
                result = await self._hand_to(session, result, result.successor)
            outcome, text = result.outcome, result.text
        finally:
            self._report(ToolReturned(asked.id, outcome, text))
        self._act(session, self._runs.returned(asked.id, result.text, wrong=result.wrong))
        if not (self._runs.waiting or session.history.pending):
            session.end_filler()
        self._changed.set()

    async def _hand_to(self, session: Session, result: ToolResult, other: Agent[Any, Any]) -> ToolResult:
        """Let another agent go on with the call, and return the result of the tool that wants it."""
        try:
            new = await self._host.hand_over(self.call, other)
        except ToolError as error:
            return ToolResult(str(error), wrong=True)
        except LookupError as error:
            self._host.failed(self.call.info, "the hand-over", error)
            return ToolResult(TOOL_FAILED, failed=True)
        if self._line is None or self._line.over:
            return result
        models = self._host.variants[new.models] if new.models != self.call.models else None
        self._knowledge = self._host.knowledge(new)
        self._agents.take_over(new, lambda: session.hand_over(self._options(), models))
        new.connect(self._line)
        self._filling = self._new_filling()
        return result

    def _configure(self, session: Session) -> None:
        session.configure(self._options())

    def _act(self, session: Session, actions: list[Action]) -> None:
        if self._line and (self._line.over or self._line.ending):  # a kept run may end after the call
            return
        for action in actions:
            match action:
                case InsertResult(id, text):
                    session.insert(*result_of(id, text))
                case CancelRun(id):
                    if running := self._tasks.get(id):
                        running.cancel()
                case TellResults(may_call):
                    if session.history.pending - self._runs.running:
                        continue  # the client returns the result of its own tool, and then requests a reply
                    if words := self._agents.first_words:
                        session.respond(ReplyRequest(words=words))
                        continue
                    request, self._requested = self._requested or ReplyRequest(), None
                    cue = LATE_RESULT if session.history.ends_with_agent else ""
                    tools = request.tools if may_call else NO_TOOLS
                    session.respond(replace(request, cue=cue, tools=tools))
