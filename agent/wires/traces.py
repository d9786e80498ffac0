"""The traces file: one JSON line for each turn of each call, with the words of both sides."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from datetime import UTC, datetime

from rejoinder.agent.trace_file import TraceFile
from rejoinder.agent.wires.silences import Silences
from rejoinder.pipeline import (
    RATE,
    EndOfTurn,
    Event,
    NothingSaid,
    ReplyAudio,
    ReplyCalled,
    ReplyDone,
    ReplyStarted,
    SpeechStarted,
    Trace,
    TurnTraced,
)

MAX_TYPED = 10_000
"""Most characters of typed text in a line."""
REMEMBERED = 32
"""Turns remembered as written: the session may send a trace again after the end of its reply."""


class Traces:
    """The lines of one call. A line is written at the end of the turn's reply, with the part that was heard.

    file: the open file; None writes nothing. call: the identifier of the call. is_open: whether there is a
    file. Without one, ``note`` need not be called for audio.
    """

    def __init__(self, file: TraceFile | None, call: str) -> None:
        self.is_open = file is not None
        self._file = file
        self._call = call
        self._traced: dict[int, Trace] = {}
        self._written: deque[int] = deque(maxlen=REMEMBERED)
        self._typed = ""
        self._silences = Silences()
        self._calling: deque[int] = deque(maxlen=REMEMBERED)
        self._beside: deque[int] = deque(maxlen=REMEMBERED)

    def typed(self, role: str, text: str) -> None:
        """Record what the user typed. It becomes the question of the next reply that answers no speech."""
        if role == "user":
            self._typed = text[:MAX_TYPED]

    def note(self, happened: Event, now: float, received: int) -> None:
        """Take a session event at loop time ``now``; write a line if it ends a turn.

        received: samples of the caller's audio so far.
        """
        if self._file is None:
            return
        match happened:
            case EndOfTurn(_, at):
                self._silences.turn_ended(now - max(0, received - at) / RATE)
            case SpeechStarted():
                self._silences.user_spoke()
            case NothingSaid():
                self._silences.nothing_said()
            case ReplyStarted(turn, out_of_band=True):
                self._beside.append(turn)
            case ReplyAudio(turn, chunk) if turn not in self._beside:
                self._silences.heard(now, chunk.seconds)
            case ReplyCalled(turn):
                self._calling.append(turn)
            case TurnTraced(trace) if trace.turn not in self._written:
                self._traced[trace.turn] = trace
            case ReplyDone(turn) if turn in self._traced:
                self._written.append(turn)
                if turn not in self._beside:
                    self._measure(self._traced[turn])
                self._write(self._file, self._traced.pop(turn), happened)

    def _measure(self, trace: Trace) -> None:
        """Put the longest silence of an answer into its trace. Words of a tool are no answer."""
        marks = trace.marks
        is_answer = ("first_token" in marks or "apology" in marks) and trace.turn not in self._calling
        if silence := self._silences.answered() if is_answer else self._silences.longest:
            trace.counts["longest_silence_ms"] = round(1000 * silence, 1)

    def _write(self, file: TraceFile, trace: Trace, done: ReplyDone) -> None:
        said, self._typed = trace.said or self._typed, ""
        line = trace.described() | {"call": self._call, "at": _at(trace), "status": done.status}
        line |= {"refused": done.refused} if done.refused else {}
        words = {"said": said, "heard": done.heard} | ({"found": trace.found} if trace.found else {})
        file.append(f"{json.dumps(line | words)}\n".encode())


def _at(trace: Trace) -> str:
    """Return the wall-clock time at which the marks begin, in UTC."""
    passed = asyncio.get_running_loop().time() - trace.origin
    begun = datetime.fromtimestamp(time.time() - passed, UTC)
    return begun.isoformat(timespec="milliseconds").replace("+00:00", "Z")
