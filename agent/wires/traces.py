"""The traces file: one JSON line for each turn of each call, with the words of both sides."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from datetime import UTC, datetime
from typing import Any

from rejoinder.agent.app.call import Call
from rejoinder.agent.trace_file import TraceFile
from rejoinder.agent.wires.silence import Silence
from rejoinder.pipeline import Event, ReplyDone, ReplyStarted, Trace, TurnTraced

MAX_TYPED = 10_000
"""Most characters of typed text in a line."""
REMEMBERED = 32
"""Turns remembered as written: the session may send a trace again after the end of its reply."""


class Traces:
    """The lines of one call. A line is written at the end of the turn's reply, with the part that was heard.

    file: the open file; None writes nothing. call: the identifier of the call. silence: measures what the
    caller waits.
    """

    def __init__(self, file: TraceFile | None, call: str, silence: Silence) -> None:
        self._silence = silence
        self._file = file
        self._call = call
        self._traced: dict[int, Trace] = {}
        self._written: deque[int] = deque(maxlen=REMEMBERED)
        self._typed: list[str] = []
        self._questions: dict[int, list[str]] = {}

    def typed(self, role: str, text: str) -> None:
        """Record what the user typed. It becomes the question of the next reply that answers no speech."""
        if role == "user":
            self._typed = [text[:MAX_TYPED]]

    def note(self, happened: Event) -> None:
        """Take a session event; write a line if it ends a turn."""
        if self._file is None:
            return
        match happened:
            case ReplyStarted(turn):
                self._questions[turn] = self._typed
            case TurnTraced(trace) if trace.turn not in self._written:
                self._traced[trace.turn] = trace
            case ReplyDone(turn, status, heard):
                refused = {"refused": happened.refused} if happened.refused else {}
                question = self._questions.pop(turn, [])
                if turn in self._traced:
                    self._written.append(turn)
                    ended = {"status": status, **refused}
                    self._write(self._file, self._traced.pop(turn), "".join(question), ended, heard)
                    question.clear()  # it is answered; text typed since the reply began is another list

    def keep(self, call: Call[Any, Any], model: str) -> None:
        """Write the whole conversation of a call that is over, if the caller has consented to that.

        model: the name of the language model.
        """
        if self._file is None or not call.consent:
            return
        said = [{"role": "system", "content": call.instructions}] if call.instructions else []
        tools = [tool.definition for tool in call.tools.values()]
        conversation = {"messages": [*said, *call.transcript], "tools": tools, "model": model}
        line = {"call": self._call, "at": _clock(time.time()), "consent": True, "conversation": conversation}
        self._append(self._file, line)

    def _append(self, file: TraceFile, line: dict[str, Any]) -> None:
        file.append(f"{json.dumps(line)}\n".encode())

    def _write(self, file: TraceFile, trace: Trace, question: str, ended: dict[str, str], heard: str) -> None:
        said = trace.said or question
        line = trace.described() | {"call": self._call, "at": _at(trace), **ended}
        line["silence_ms"] = round(self._silence.take_turn() * 1000.0, 1)
        self._append(file, line | {"said": said, "heard": heard})


def _at(trace: Trace) -> str:
    """Return the wall-clock time at which the marks begin, in UTC."""
    passed = asyncio.get_running_loop().time() - trace.origin
    return _clock(time.time() - passed)


def _clock(at: float) -> str:
    begun = datetime.fromtimestamp(at, UTC)
    return begun.isoformat(timespec="milliseconds").replace("+00:00", "Z")
