"""The record of one call as plain data: its turns, tools, latencies and queue waits."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from rejoinder.agent.app.call import CallInfo
from rejoinder.agent.wires.ids import new_id
from rejoinder.pipeline import Trace

MAX_CALL_CHARACTERS = 1_000_000
"""Most characters of words and tools in the record of one call. Later ones are left out."""
MAX_FIELD = 20_000
"""Most characters of one field: what a caller said, an answer, or the result of a tool."""
MAX_LABEL = 128
"""Most characters of names and identifiers, which clients and models choose."""
MAX_TURNS = 1_000
"""Most turns of one call. The oldest are left out."""
MAX_TURN_TOOLS = 64
"""Most calls of tools in one turn. Later ones are left out."""


@dataclass(slots=True)
class ToolRecord:
    """A call of a tool. began: seconds since the call began. ms: its duration, None while it runs."""

    id: str
    name: str
    arguments: str
    began: float
    result: str = ""
    failed: bool = False
    ms: float | None = None

    def described(self) -> dict[str, Any]:
        """Return it for JSON."""
        shown = {"id": self.id, "name": self.name, "arguments": self.arguments, "result": self.result}
        return {**shown, "at": self.began, "failed": self.failed, "ms": self.ms}


@dataclass(slots=True)
class TurnRecord:
    """What a caller said, and the reply to it.

    at: seconds since the call began. turn: number of the reply, None where there is none. said: the caller's
    words since the last turn. typed: whether they came as text. text: the words that were sent to be played.
    heard: those of them that were heard, None while the reply runs. beside: whether it is an out-of-band
    reply. speaks: whether it is spoken, so that its text comes clause by clause. status: as in ``ReplyDone``,
    "" while it runs. waits: seconds that jobs waited, by engine. models: the language models that wrote it.
    latency_ms: from the caller's last word to the first audio, 0 if unknown. changed: the count of the call's
    changes at the last one of this turn.
    """

    at: float
    turn: int | None = None
    said: str = ""
    typed: bool = False
    text: str = ""
    heard: str | None = None
    beside: bool = False
    speaks: bool = True
    status: str = ""
    error: str = ""
    refused: str = ""
    trace: Trace | None = None
    latency_ms: float = 0.0
    tokens: tuple[int, int] | None = None
    tools: list[ToolRecord] = field(default_factory=list)
    waits: dict[str, float] = field(default_factory=dict)
    models: list[str] = field(default_factory=list)
    changed: int = 0

    @property
    def silence_ms(self) -> float:
        """The longest time without sound while the caller waited, as far as it is known."""
        if self.trace is None:
            return 0.0
        return max(1000.0 * self.trace.silence, self.trace.counts.get("longest_silence_ms", 0.0))

    def described(self) -> dict[str, Any]:
        """Return it for JSON. The trace's part is that of the trace file."""
        trace = (self.trace or Trace(self.turn or 0)).described() | {"turn": self.turn}
        return {
            **trace,
            "at": round(self.at, 3),
            "models": self.models,
            "said": self.said,
            "typed": self.typed,
            "text": self.text,
            "heard": self.heard,
            "beside": self.beside,
            "status": self.status,
            "error": self.error,
            "refused": self.refused,
            "latency_ms": round(self.latency_ms, 1),
            "tokens": {"read": self.tokens[0], "written": self.tokens[1]} if self.tokens else None,
            "tools": [tool.described() for tool in self.tools],
            "waits": [{"name": name, "ms": round(1000.0 * s, 1)} for name, s in self.waits.items()],
        }


@dataclass(slots=True)
class CallRecord:
    """What is known of a call.

    id: names the record. call: the call's own identifier, as in the log. began: seconds since the epoch.
    seconds: the duration, None while the call runs. partial: the caller's words so far. error: the kind of
    the error that ended the call. left_out: turns that are not in the record. interruptions: sounds over the
    agent that were one, and that were none. user_s, agent_s: seconds in which each side spoke.
    """

    id: str
    call: str
    wire: str
    caller: str
    called: str
    began: float
    seconds: float | None = None
    partial: str = ""
    reason: str = ""
    error: str = ""
    left_out: int = 0
    interruptions: tuple[int, int] = (0, 0)
    user_s: float = 0.0
    agent_s: float = 0.0
    turns: list[TurnRecord] = field(default_factory=list)

    @classmethod
    def of(cls, info: CallInfo, began: float) -> CallRecord:
        """Return the record of a call that begins."""
        call, wire, caller, called = (
            clean(one, MAX_LABEL) for one in (info.id, info.wire, info.caller, info.called)
        )
        return cls(new_id("call"), call, wire, caller, called, round(began, 3))

    def summary(self) -> dict[str, Any]:
        """Return the call's entry in a list, for JSON."""
        waits = sorted(turn.latency_ms for turn in self.turns if turn.latency_ms)
        talked = self.user_s + self.agent_s
        real, false = self.interruptions
        return {
            "id": self.id,
            "call": self.call,
            "wire": self.wire,
            "caller": self.caller,
            "called": self.called,
            "began": self.began,
            "at": utc(self.began),
            "seconds": self.seconds,
            "turn_count": self.left_out + sum(not turn.beside for turn in self.turns),
            "tool_count": sum(len(turn.tools) for turn in self.turns),
            "errors": bool(self.error) + sum(turn.status == "failed" for turn in self.turns),
            "p50_ms": round(quantile(waits, 0.5), 1),
            "p95_ms": round(quantile(waits, 0.95), 1),
            "slowest_ms": round(quantile(waits, 1.0), 1),
            "longest_silence_ms": round(max((turn.silence_ms for turn in self.turns), default=0.0), 1),
            "interruptions": real,
            "false_interruptions": false,
            "caller_share": round(self.user_s / talked, 3) if talked else None,
            "reason": self.reason,
            "error": self.error,
        }

    def described(self, since: int = -1) -> dict[str, Any]:
        """Return the whole call for JSON. since: leaves out the turns without later changes."""
        turns = [
            {**turn.described(), "number": self.left_out + number}
            for number, turn in enumerate(self.turns, 1)
            if turn.changed > since
        ]
        return {**self.summary(), "partial": self.partial, "left_out": self.left_out, "turns": turns}

    def words(self) -> str:
        """Return the words of both sides for a search, in lower case."""
        lines = (line for turn in self.turns for line in (turn.said, turn.text))
        return "\n".join(filter(None, lines)).casefold()

    def to_json(self) -> str:
        """Return ``described`` as JSON."""
        return json.dumps(self.described(), ensure_ascii=False)


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of sorted values does not exceed, 0 for none (nearest rank)."""
    return values[max(0, math.ceil(share * len(values)) - 1)] if values else 0.0


def clean(text: str, most: int) -> str:
    """Return at most ``most`` characters of a text from a client or a model, without halves of characters.

    JSON can hold half a surrogate pair, which UTF-8 and SQLite cannot.
    """
    return text[:most].encode("utf-8", "replace").decode()


def utc(at: float) -> str:
    """Return seconds since the epoch as a time of day in UTC."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
