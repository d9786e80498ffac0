"""The file of traces: one JSON line for each turn of each call, with what was said in it."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import deque
from datetime import UTC, datetime
from io import RawIOBase

from rejoinder.pipeline import Event, ReplyDone, Trace, TurnTraced

log = logging.getLogger(__name__)

MAX_TYPED = 10_000
"""Characters that are kept of what was typed."""
REMEMBERED = 32
"""Turns of which it is remembered that they were written: a trace may be told once more after its reply."""


class Traces:
    """The lines of one call. Each is written when the reply of its turn is over, with what was heard of it.

    file: is written to; None writes nothing. call: the id of the call.
    """

    def __init__(self, file: RawIOBase | None, call: str) -> None:
        self._file = file
        self._call = call
        self._traced: dict[int, Trace] = {}
        self._written: deque[int] = deque(maxlen=REMEMBERED)
        self._typed = ""

    def typed(self, role: str, text: str) -> None:
        """Note what the user typed: the next reply that answers no speech answers that."""
        if role == "user":
            self._typed = text[:MAX_TYPED]

    def note(self, happened: Event) -> None:
        """Take what happened in the session."""
        if self._file is None:
            return
        match happened:
            case TurnTraced(trace) if trace.turn not in self._written:
                self._traced[trace.turn] = trace
            case ReplyDone(turn, status, heard) if turn in self._traced:
                self._written.append(turn)
                self._write(self._file, self._traced.pop(turn), status, heard)

    def _write(self, file: RawIOBase, trace: Trace, status: str, heard: str) -> None:
        said, self._typed = trace.said or self._typed, ""
        line = trace.described() | {"call": self._call, "at": _at(trace), "status": status}
        try:
            file.write(f"{json.dumps(line | {'said': said, 'heard': heard})}\n".encode())
        except (OSError, ValueError) as error:  # full, or closed: no reason to hang up
            log.warning("cannot write the trace: %s", error)


def _at(trace: Trace) -> str:
    """Return when the marks begin, by the clock on the wall."""
    passed = asyncio.get_running_loop().time() - trace.origin
    begun = datetime.fromtimestamp(time.time() - passed, UTC)
    return begun.isoformat(timespec="milliseconds").replace("+00:00", "Z")
