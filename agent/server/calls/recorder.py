"""Follows one call and writes its record. It changes nothing in the call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from rejoinder.agent.app.tool_result import ToolReturned
from rejoinder.agent.metrics.measures import CallMeasures, error_measure
from rejoinder.agent.server.calls.record import (
    MAX_CALL_CHARACTERS,
    MAX_FIELD,
    MAX_LABEL,
    MAX_TURN_TOOLS,
    MAX_TURNS,
    CallRecord,
    ToolRecord,
    TurnRecord,
    clean,
)
from rejoinder.agent.wires.commands import AddText, RecordingTranscribed, Truncated
from rejoinder.agent.wires.failures import public_error
from rejoinder.agent.wires.observer import Observed
from rejoinder.pipeline import (
    EndOfTurn,
    NothingSaid,
    PartialTranscript,
    ReplyCalled,
    ReplyDone,
    ReplyStarted,
    ReplyText,
    Session,
    TurnTraced,
)

CANCELLED_TOOL = "(It had not returned when the call ended.)"
"""The result of a tool that has not returned by the end of its call."""


class CallRecorder:
    """Records one call, as a ``CallObserver``.

    now: returns seconds of any clock. waits: seconds that the call's jobs waited in engines, which grows.
    begun, ended: called with the recorder when the call's session begins, and at the end of the call. llm:
    public name of the language model, for replies whose trace names none. changes: number of changes of the
    record.
    """

    def __init__(
        self,
        record: CallRecord,
        now: Callable[[], float],
        waits: Mapping[str, float],
        begun: Callable[[CallRecorder], None],
        ended: Callable[[CallRecorder], None],
        llm: str = "",
    ) -> None:
        self.record = record
        self.changes = 0
        self._now = now
        self._began = now()
        self._waits = waits
        self._waited: dict[str, float] = {}
        self._begun = begun
        self._ended = ended
        self._llm = llm
        self._measures = CallMeasures(llm)
        self._session: Session | None = None
        self._summary: dict[str, Any] = {}
        self._summarised = -1
        self._room = MAX_CALL_CHARACTERS
        self._said = ""
        self._typed = False
        self._said_at: float | None = None
        self._by_number: dict[int, TurnRecord] = {}
        self._running: dict[str, tuple[TurnRecord, ToolRecord]] = {}

    def begin(self, session: Session) -> None:
        """Take the session of the call, which begins."""
        self._session = session
        self._begun(self)

    def take(self, event: Observed) -> None:
        """Take what happened in the call."""
        self._measure(event)
        match event:
            case PartialTranscript(text):
                self.record.partial = clean(text, MAX_FIELD)
            case EndOfTurn(text):
                self._say(text, typed=False)
            case NothingSaid():
                self.record.partial = ""
            case AddText("user", text):
                self._say(text, typed=True)
            case RecordingTranscribed(text=text) if text:
                self._say(text, typed=False)
            case ReplyStarted():
                self._begin_turn(event)
            case ReplyText() | ReplyCalled() | ReplyDone() | Truncated():
                if found := self._by_number.get(event.turn):
                    self._of_reply(found, event)
                    self._change(found)
            case TurnTraced(trace):
                if found := self._by_number.get(trace.turn):
                    found.trace, found.latency_ms = trace, 1000.0 * trace.latency
                    self._change(found)
            case ToolReturned():
                self._end_tool(event)
            case _:
                return
        self.changes += 1

    def _measure(self, event: Observed) -> None:
        """Add up what the metrics count, too: interruptions, and the time in which each side spoke."""
        record = self.record
        real, false = record.interruptions
        for one in self._measures.take(event):
            match one.metric, one.labels:
                case "interruptions", ("true",):
                    record.interruptions = real + 1, false
                case "interruptions", _:
                    record.interruptions = real, false + 1
                case "audio_seconds", ("user_speech",):
                    record.user_s += one.value
                case "audio_seconds", _:
                    record.agent_s += one.value

    def end(self, error: BaseException | None, reason: str) -> None:
        """Take the end of the call. error: what ended it, None for an orderly end."""
        record = self.record
        record.seconds, record.partial = round(self._since(), 3), ""
        record.reason = clean(reason, MAX_FIELD)
        record.error = error_measure(error).labels[0] if error else ""
        if self._said_at is not None:
            self._add(TurnRecord(self._said_at, None, *self._take_said()))
        for turn, tool in self._running.values():
            tool.result = tool.result or CANCELLED_TOOL
            self._change(turn)
        self._session = None
        self.changes += 1
        self._ended(self)

    def live(self) -> dict[str, Any]:
        """Return the running call's entry in a list: its summary, and its state at this moment."""
        if self._summarised < self.changes:  # of a long call it is work, and readers ask twice a second
            self._summarised = self.changes
            last = next((turn.trace for turn in reversed(self.record.turns) if turn.latency_ms), None)
            budget = last.described()["budget"] if last else []
            self._summary = {**self.record.summary(), "budget": budget}
        session = self._session
        return {
            **self._summary,
            "seconds": round(self._since(), 1),
            "live": session is not None,
            "floor": session.floor.floor.name.lower() if session else "",
            "partial": self.record.partial,
        }

    # --- turns ------------------------------------------------------------------------------------------

    def _say(self, text: str, typed: bool) -> None:
        self.record.partial = ""
        between = "\n" if self._said_at is not None else ""
        if self._said_at is None:
            self._said_at = self._since()
        self._typed = typed
        self._said += self._text(f"{between}{text}"[: MAX_FIELD - len(self._said)])

    def _take_said(self) -> tuple[str, bool]:
        said, typed = self._said, self._typed
        self._said, self._typed, self._said_at = "", False, None
        return said, typed

    def _begin_turn(self, started: ReplyStarted) -> None:
        number, beside = started.turn, started.out_of_band
        at = self._since() if self._said_at is None or beside else self._said_at
        said, typed = ("", False) if beside else self._take_said()
        turn = TurnRecord(at, number, said, typed, beside=beside, speaks=started.speaks)
        self._by_number[number] = turn
        self._add(turn)

    def _add(self, turn: TurnRecord) -> None:
        self.record.turns.append(turn)
        self._change(turn)
        if len(self.record.turns) > MAX_TURNS:
            oldest = self.record.turns.pop(0)
            self.record.left_out += 1
            self._by_number.pop(oldest.turn or 0, None)
            for tool in oldest.tools:
                if self._running.get(tool.id, (None,))[0] is oldest:
                    del self._running[tool.id]

    def _of_reply(self, turn: TurnRecord, event: ReplyText | ReplyCalled | ReplyDone | Truncated) -> None:
        match event:
            case ReplyText(text=text):
                between = " " if turn.speaks and turn.text else ""
                turn.text += self._text(between + text)[: MAX_FIELD - len(turn.text)]
            case ReplyCalled(call=call) if len(turn.tools) < MAX_TURN_TOOLS:
                id_, name = clean(call.id, MAX_LABEL), clean(call.name, MAX_LABEL)
                tool = ToolRecord(id_, name, self._text(call.arguments), round(self._since(), 3))
                turn.tools.append(tool)
                self._running[id_] = turn, tool
            case ReplyDone():
                self._end_reply(turn, event)
            case Truncated(text=str() as heard):
                turn.heard = clean(heard, MAX_FIELD)

    def _end_reply(self, turn: TurnRecord, done: ReplyDone) -> None:
        turn.status, turn.trace = done.status, done.trace or turn.trace
        turn.latency_ms = 1000.0 * turn.trace.latency if turn.trace else 0.0
        if turn.trace:  # words of a greeting or from the cache have no tokens
            turn.models = turn.trace.models or [self._llm] * bool(turn.trace.tokens)
        turn.heard, turn.refused = clean(done.heard, MAX_FIELD), clean(done.refused, MAX_FIELD)
        if done.status == "failed":
            cause = done.cause if isinstance(done.cause, Exception) else None
            turn.error = self._text(public_error(cause).message if cause else done.error)
        if done.usage is not None:
            turn.tokens = done.usage.read, done.usage.written
        waits = dict(self._waits)  # the engines' threads add to it
        turn.waits = {
            name: seconds - self._waited.get(name, 0.0)
            for name, seconds in waits.items()
            if seconds - self._waited.get(name, 0.0) >= 0.0001
        }
        self._waited = waits

    def _end_tool(self, ended: ToolReturned) -> None:
        if found := self._running.pop(clean(ended.id, MAX_LABEL), None):
            turn, tool = found
            tool.result, tool.failed = self._text(ended.result), ended.outcome in ("failed", "wrong")
            tool.ms = round(1000.0 * (self._since() - tool.began), 1)
            self._change(turn)

    def _change(self, turn: TurnRecord) -> None:
        turn.changed = self.changes + 1

    def _text(self, text: str) -> str:
        kept = clean(text, min(MAX_FIELD, self._room))
        self._room -= len(kept)
        return kept

    def _since(self) -> float:
        return self._now() - self._began
