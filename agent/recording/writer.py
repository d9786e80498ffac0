"""The thread that encodes and writes all recordings of a server."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import Full, Queue

log = logging.getLogger(__name__)

MOST_JOBS = 8192
"""Most jobs that wait for the thread, of all calls."""


class RecordingWriter:
    """Runs jobs one after the other, in one thread.

    The queue is bounded: it refuses jobs instead of waiting.
    """

    def __init__(self) -> None:
        self._jobs: Queue[Callable[[], None] | None] = Queue(MOST_JOBS)
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="recordings", daemon=True)
        self._thread.start()

    def submit(self, job: Callable[[], None]) -> bool:
        """Run a job soon; return whether there was room for it."""
        with suppress(Full):
            self._jobs.put_nowait(job)
            return True
        return False

    def end(self, seconds: float) -> bool:
        """Wait until all jobs are done, at most ``seconds``; return whether they are. It blocks."""
        with suppress(Full):
            self._jobs.put(None, timeout=seconds)
        if self._thread:
            self._thread.join(seconds)
            return not self._thread.is_alive()
        return True

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            try:
                job()
            except Exception:  # a job reports its own errors: this is a fault in it, and others go on
                log.exception("a recording was not written")
