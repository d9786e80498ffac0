"""The trace of one call: a span for the call, one for each turn, and below it the stages and the tools.

Names of attributes: https://github.com/open-telemetry/semantic-conventions-genai (docs/gen-ai; in
development; voice: proposals 390, 393 and 394). Spans have no words of the conversation, unless
``CONTENT_VARIABLE`` asks for them.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

from opentelemetry.context import Context
from opentelemetry.trace import SpanContext, SpanKind

from rejoinder.agent.app.call import CallInfo
from rejoinder.agent.app.tool_result import ToolReturned
from rejoinder.agent.metrics.llm_identities import LlmIdentities
from rejoinder.agent.metrics.measures import error_measure, request_begin
from rejoinder.agent.metrics.spans import Spans
from rejoinder.agent.wires.observer import Observed
from rejoinder.pipeline import ReplyCalled, ReplyDone, ReplyStarted, Session, Trace
from rejoinder.pipeline.trace import FIRST_MARK, PART_NAMES

MAX_TOOL_RUNS = 64
"""Most tools of a call that are traced at a time."""
CANCELLED_RUN = "cancelled"
"""The ``error.type`` of a tool that was cancelled, or has not returned at the end of its call."""
RUN_ERRORS = {"wrong": "invalid_arguments", "failed": "tool_error", "cancelled": CANCELLED_RUN}
"""The ``error.type`` of a tool's run, by its outcome."""
CONTENT_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
"""Environment variable: whether spans have the words of callers and agents."""
END_REASONS = {"completed": "completed", "cancelled": "interrupted"}
"""``gen_ai.agent.invocation.end_reason`` by a reply's status. A failed one has ``error.type`` instead."""
STAGES = {"speech_to_text": ("pause_seen", "transcribed"), "text_to_speech": ("first_clause", "first_audio")}
"""Operations of a turn, and the marks at which the caller begins and ends to wait for them."""


@dataclass(slots=True)
class ToolRun:
    """One run of a tool. Times are loop times.

    turn: the span of the reply that called it, None before it. error: its ``error.type``, "" for none.
    """

    name: str
    reply: int
    began: float
    turn: SpanContext | None = None
    ended: float | None = None
    error: str = ""


class CallTrace:
    """Traces one call. It begins with the object.

    parent: of the call's span. clock: returns the loop time. llms: the language models, which spans name.
    has_words: whether spans have the words of the conversation.
    """

    def __init__(
        self,
        spans: Spans,
        info: CallInfo,
        parent: Context,
        clock: Callable[[], float],
        llms: LlmIdentities,
        has_words: bool = False,
    ) -> None:
        self._spans = spans
        self._id = info.id
        self._clock = clock
        self._llms = llms
        self._has_words = has_words
        self._began: dict[int, float] = {}
        self._runs: dict[str, ToolRun] = {}
        about = {"gen_ai.conversation.id": info.id, "rejoinder.wire": info.wire}
        self._call = spans.begin("call", clock(), parent, about, SpanKind.SERVER)
        context = self._context = self._call.get_span_context()
        flags = int(context.trace_flags)
        self.traceparent = f"00-{context.trace_id:032x}-{context.span_id:016x}-{flags:02x}"

    def begin(self, session: Session) -> None:
        """Do nothing: the trace has begun."""

    def take(self, event: Observed) -> None:
        """Take an event of the session. The end of a reply makes the spans of its turn."""
        match event:
            case ReplyStarted(turn):
                self._began[turn] = self._clock()
            case ReplyCalled(turn, call) if len(self._runs) < MAX_TOOL_RUNS:
                self._runs[call.id] = ToolRun(call.name, turn, self._clock())
            case ReplyDone():
                self._reply(event)
            case ToolReturned(id, outcome) if run := self._runs.get(id):
                run.ended, run.error = self._clock(), RUN_ERRORS.get(outcome, "")
                self._run(id, run)

    def end(self, error: BaseException | None, reason: str) -> None:
        """End the trace. error: what ended the call, None for an orderly end."""
        for id, run in list(self._runs.items()):
            run.turn = run.turn or self._context
            if run.ended is None:
                run.ended, run.error = self._clock(), CANCELLED_RUN
            self._run(id, run)
        self._spans.end(self._call, self._clock(), kind_of(error))

    # --- the spans --------------------------------------------------------------------------------------

    def _reply(self, done: ReplyDone) -> None:
        trace, now = done.trace or Trace(done.turn), self._clock()
        began = min(trace.origin or now, self._began.pop(done.turn, now))
        about: dict[str, str | int] = {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.conversation.id": self._id,
            "gen_ai.provider.name": self._llms.of(trace.models).provider,
            "rejoinder.turn": done.turn,
            "rejoinder.status": done.status,
            "gen_ai.output.type": "speech" if done.played else "text",
        }
        if reason := END_REASONS.get(done.status):
            about["gen_ai.agent.invocation.end_reason"] = reason
        if self._has_words:
            about["gen_ai.input.messages"] = _messages("user", trace.said)
            about["gen_ai.output.messages"] = _messages("assistant", done.heard)
        span = self._spans.begin("invoke_agent", began, self._context, about)
        turn = span.get_span_context()
        at = trace.marks.get(FIRST_MARK, 0.0)
        for mark, seconds in trace.parts():
            stage = self._spans.begin(PART_NAMES[mark], at, turn, {"rejoinder.part": mark})
            self._spans.end(stage, at := at + seconds)
        for operation, (first, last) in STAGES.items():
            if first in trace.marks and last in trace.marks and trace.marks[first] <= trace.marks[last]:
                named = {"gen_ai.operation.name": operation, "gen_ai.conversation.id": self._id}
                stage = self._spans.begin(operation, trace.marks[first], turn, named)
                self._spans.end(stage, trace.marks[last])
        self._request(done, trace, turn, now)
        for id, run in list(self._runs.items()):
            if run.reply == done.turn and run.turn is None:
                run.turn = turn
                self._run(id, run)
        self._spans.end(span, now, kind_of(done.cause))

    def _request(self, done: ReplyDone, trace: Trace, turn: SpanContext, now: float) -> None:
        """Make the span of the request to the language model, if there was one."""
        asked = request_begin(trace)
        if asked is None or not (trace.until or trace.request):
            return
        llm = self._llms.of(trace.models)
        about: dict[str, str | bool | int | float] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": llm.provider,
            "gen_ai.request.model": llm.model,
            "gen_ai.request.stream": True,
            "gen_ai.conversation.id": self._id,
        }
        if "first_token" in trace.marks:
            about["gen_ai.response.time_to_first_chunk"] = trace.marks["first_token"] - asked
        if done.usage is not None:
            about["gen_ai.usage.input_tokens"] = done.usage.read
            about["gen_ai.usage.output_tokens"] = done.usage.written
        kind = SpanKind.CLIENT if llm.remote else SpanKind.INTERNAL
        span = self._spans.begin(f"chat {llm.model}", asked, turn, about, kind, trace.request)
        self._spans.end(span, trace.until or now, "" if trace.until else kind_of(done.cause))

    def _run(self, id: str, run: ToolRun) -> None:
        """Make the span of a tool's run, once its turn and its end are known."""
        if run.turn is None or run.ended is None:
            return
        del self._runs[id]
        about = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": run.name,
            "gen_ai.tool.call.id": id,
            "gen_ai.tool.type": "function",
        }
        span = self._spans.begin(f"execute_tool {run.name}", run.began, run.turn, about)
        self._spans.end(span, run.ended, run.error)


def kind_of(error: BaseException | None) -> str:
    """Return the kind of an error, as in the metrics; "" for none."""
    return error_measure(error).labels[0] if error else ""


def _messages(role: str, words: str) -> str:
    """Return one message, as JSON, as the conventions want it."""
    return json.dumps([{"role": role, "parts": [{"type": "text", "content": words}]}])
