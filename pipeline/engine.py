"""One model, one thread, many sessions: batch what is waiting, never block the loop."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rejoinder.pipeline.errors import ModelError, Overloaded, PipelineError

In = TypeVar("In")
Out = TypeVar("Out")


@dataclass(slots=True)
class _Job(Generic[In, Out]):
    item: In
    loop: asyncio.AbstractEventLoop
    result: asyncio.Future[Out]


@dataclass(slots=True)
class EngineStats:
    """What an engine did so far: ``steps`` run, ``jobs`` answered, ``dropped`` unrun, ``busy`` seconds."""

    steps: int = 0
    jobs: int = 0
    dropped: int = 0
    busy: float = 0.0


class Engine(Generic[In, Out]):
    """Run ``step(batch)`` on a thread that owns the model.

    The batch is whatever queued while the previous step ran, up to ``max_batch``: there is no timer, so an
    idle engine adds no delay and a busy one batches by itself. At most ``max_waiting`` jobs wait; one more
    raises Overloaded. An engine has no idea what a conversation is.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[Sequence[In]], Sequence[Out]],
        max_batch: int = 1,
        max_waiting: int = 64,
    ) -> None:
        self.name = name
        self.stats = EngineStats()
        self._step = step
        self._max_batch = max_batch
        self._max_waiting = max_waiting
        self._jobs: queue.SimpleQueue[_Job[In, Out] | None] = queue.SimpleQueue()
        self._closed = False
        self._closing = threading.Lock()
        self._thread = threading.Thread(target=self._work, daemon=True, name=f"engine-{name}")
        self._thread.start()

    @property
    def waiting(self) -> int:
        """Count the jobs that no step has taken yet."""
        return self._jobs.qsize()

    async def run(self, item: In) -> Out:
        """Run one item through the model.

        Cancelling stops the wait at once: a job that has not started never runs, and the result of one that
        has is dropped. Raises Overloaded when the queue is full, ModelError when closed, and what the step
        raised: as it is if it is a PipelineError, else as the cause of a ModelError.
        """
        if self.waiting >= self._max_waiting:
            raise Overloaded(f"{self.name}: {self._max_waiting} jobs are waiting already")
        loop = asyncio.get_running_loop()
        job: _Job[In, Out] = _Job(item, loop, loop.create_future())
        with self._closing:  # a job put in behind the end would wait for ever
            if self._closed:
                raise ModelError(self.name, "the engine is closed")
            self._jobs.put(job)
        return await job.result

    def close(self) -> None:
        """Finish the step that runs, fail what waits, and end the thread."""
        with self._closing:
            if not self._closed:
                self._closed = True
                self._jobs.put(None)
        self._thread.join()

    def _work(self) -> None:
        while (batch := self._take()) is not None:
            live = [job for job in batch if not job.result.cancelled()]
            self.stats.dropped += len(batch) - len(live)
            if self._closed:
                for job in live:
                    _answer(job, None, ModelError(self.name, "the engine is closed"))
            elif live:
                self._run(live)

    def _named(self, error: Exception) -> Exception:
        if isinstance(error, PipelineError):
            return error
        failure = ModelError(self.name, str(error) or type(error).__name__)
        failure.__cause__ = error
        return failure

    def _take(self) -> list[_Job[In, Out]] | None:
        if (first := self._jobs.get()) is None:
            return None
        batch = [first]
        while len(batch) < self._max_batch and not self._jobs.empty():
            if (job := self._jobs.get()) is None:
                self._jobs.put(None)  # close after this batch
                break
            batch.append(job)
        return batch

    def _run(self, jobs: list[_Job[In, Out]]) -> None:
        began = time.perf_counter()
        try:
            results = self._step([job.item for job in jobs])
            if len(results) != len(jobs):
                raise ModelError(self.name, f"the step answered {len(results)} of {len(jobs)} jobs")
        except Exception as error:
            for job in jobs:
                _answer(job, None, self._named(error))
        else:
            for job, result in zip(jobs, results, strict=True):
                _answer(job, result, None)
        self.stats.steps += 1
        self.stats.jobs += len(jobs)
        self.stats.busy += time.perf_counter() - began


def _answer(job: _Job[In, Out], result: Out | None, error: Exception | None) -> None:
    def settle() -> None:
        if job.result.done():  # the caller was cancelled while the model ran
            return
        if error is not None:
            job.result.set_exception(error)
        else:
            job.result.set_result(result)  # type: ignore[arg-type]

    try:
        job.loop.call_soon_threadsafe(settle)
    except RuntimeError:
        pass  # the loop is closed: nobody waits any more
