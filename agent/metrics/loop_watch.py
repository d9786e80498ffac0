"""Names the code that blocks the event loop."""

from __future__ import annotations

import asyncio
import logging
import selectors
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

log = logging.getLogger(__name__)

BEAT_SECONDS = 0.1
"""Interval between two signs of life of the event loop, in seconds."""
BLOCKED_SECONDS = 0.5
"""The event loop counts as blocked after this time without a sign of life, in seconds."""
NAMED_FRAMES = 6
"""Innermost functions of a stack in the log."""
LOOP_FILE = asyncio.base_events.__file__
"""The file of asyncio's loop. Its ``_run_once`` waits in a selector while the loop has nothing to do."""


class LoopWatch:
    """Watches an event loop from a thread. seconds: how long it may be blocked."""

    def __init__(self, loop: asyncio.AbstractEventLoop, seconds: float = BLOCKED_SECONDS) -> None:
        self._loop = loop
        self._seconds = seconds
        self._thread_id = threading.get_ident()
        self._last = time.monotonic()
        self._ended = threading.Event()
        self._beat_handle: asyncio.TimerHandle | None = None
        self._thread = threading.Thread(target=self._watch, name="loop-watch", daemon=True)

    def start(self) -> None:
        """Begin to watch. Call it in the loop's thread."""
        self._beat()
        self._thread.start()

    def close(self) -> None:
        """Stop watching, and wait until the thread has ended."""
        if self._beat_handle is not None:
            self._beat_handle.cancel()
        self._ended.set()
        self._thread.join()

    def _beat(self) -> None:
        self._last = time.monotonic()
        self._beat_handle = self._loop.call_later(BEAT_SECONDS, self._beat)

    def _watch(self) -> None:
        suspected = reported = 0.0
        while not self._ended.wait(BEAT_SECONDS):
            last, now = self._last, time.monotonic()
            if now - last < self._seconds + BEAT_SECONDS or last == reported:
                continue
            frame = sys._current_frames().get(self._thread_id)
            if frame is None or is_idle(frame):
                continue  # it waits: the machine is busy with something else
            if suspected != last:
                suspected = last
                continue  # on a busy machine it may only just have begun to run: look again
            reported = last
            log.warning(
                "the event loop has been blocked for %.0f ms, and all calls wait: in %s",
                (now - last) * 1000,
                where(frame),
                extra={"blocked_ms": round((now - last) * 1000)},
            )


def is_idle(frame: FrameType) -> bool:
    """Return whether the thread of an event loop waits for events, or only begins to run one.

    frame: the innermost one of the thread. Other code may wait in a selector, too, and block the loop:
    ``subprocess.run`` does.
    """
    if frame.f_code.co_filename == selectors.__file__ and frame.f_back is not None:
        frame = frame.f_back
    return frame.f_code.co_filename == LOOP_FILE and frame.f_code.co_name == "_run_once"


def where(frame: FrameType | None) -> str:
    """Return the innermost functions of a stack in one line, the innermost first."""
    named: list[str] = []
    while frame is not None and len(named) < NAMED_FRAMES:
        code = frame.f_code
        named.append(f"{code.co_name} ({Path(code.co_filename).name}:{frame.f_lineno})")
        frame = frame.f_back
    return ", called by ".join(named)


@contextmanager
def watching_loop() -> Iterator[None]:
    """Watch the running event loop for the length of the block."""
    watch = LoopWatch(asyncio.get_running_loop())
    watch.start()
    try:
        yield
    finally:
        watch.close()
