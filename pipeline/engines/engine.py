"""An engine runs one model on one thread for many sessions, without blocking the event loop."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from rejoinder.pipeline.engines import call_id, queue_waits
from rejoinder.pipeline.engines import deadline as deadline
from rejoinder.pipeline.engines.deadline import Deadline
from rejoinder.pipeline.errors import ModelError, Overloaded, PipelineError

In = TypeVar("In")
Out = TypeVar("Out")

RETURN_SECONDS = 0.002
"""Grace period after a step for the next job of the callers it answered.

A caller that generates tokens one by one returns in a fraction of that. Without the grace period two such
callers would take turns instead of sharing steps, and the less urgent one would get every other step.
"""
MOST_WAITING = 1024
"""Jobs that wait at most. A call has one or two at a time in each engine, so this is far above the calls that
a process can answer. It bounds the memory if a model hangs."""
LULL_SECONDS = 0.02
"""Pressing work counts as going on for this time after a step: the next token or engine usually follows."""


@dataclass(slots=True, eq=False)
class _Job(Generic[In, Out]):
    item: In
    deadline: Deadline
    loop: asyncio.AbstractEventLoop
    result: asyncio.Future[Out]
    came: float
    call: str
    waits: dict[str, float] | None

    def left(self) -> float:
        return self.deadline.left(self.loop.time())


@dataclass(slots=True)
class EngineStats:
    """Totals of an engine since its start.

    steps: steps that ran. jobs: jobs in these steps; several jobs in one step are a batch.
    batches: number of steps for each number of jobs. failed: steps that raised an error.
    dropped: jobs cancelled before they ran.
    busy: seconds spent in steps. pressing: seconds spent in steps whose first job was due soon.
    waited: seconds that jobs waited for their step, added up.
    """

    steps: int = 0
    jobs: int = 0
    batches: dict[int, int] = field(default_factory=dict)
    failed: int = 0
    dropped: int = 0
    busy: float = 0.0
    pressing: float = 0.0
    waited: float = 0.0


class AtWork(Protocol):
    """What says whether it is at work: an engine, or what stands for one in another process."""

    @property
    def running(self) -> bool:
        """Whether it works at this moment."""


class Engine(Generic[In, Out]):
    """Runs ``step(batch)`` on a thread that owns the model.

    The job with the earliest ``Deadline`` runs first, in a batch of at most ``max_batch`` jobs of its kind.
    An idle engine adds no delay. A busy engine forms batches from the jobs that wait. An engine knows nothing
    of conversations.

    name: the adapter's name in errors.
    step: computes one result per item, in order.
    max_waiting: most jobs that wait; one more raises Overloaded.
    alike: returns the kind of an item; only items of equal kinds share a batch. Its second argument is
        whether the work is certainly needed.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[Sequence[In]], Sequence[Out]],
        max_batch: int = 1,
        max_waiting: int = MOST_WAITING,
        alike: Callable[[In, bool], Hashable] = lambda item, sure: None,
    ) -> None:
        self.name = name
        self.stats = EngineStats()
        self._step = step
        self._max_batch = max_batch
        self._max_waiting = max_waiting
        self._alike = alike
        self._jobs: list[_Job[In, Out]] = []
        self._news = threading.Condition()
        self._closed = self._running = False
        self._came = self._expected = 0
        self._ended = 0.0
        self._pressed = -math.inf
        self._thread = threading.Thread(target=self._work, daemon=True, name=f"engine-{name}")
        self._thread.start()

    @property
    def waiting(self) -> int:
        """The number of jobs that no step has taken yet."""
        return len(self._jobs)

    @property
    def age(self) -> float:
        """The seconds that the oldest job has waited, 0 if none waits."""
        with self._news:
            oldest = next((job.came for job in self._jobs if not job.result.cancelled()), None)
        return 0.0 if oldest is None else time.perf_counter() - oldest

    @property
    def running(self) -> bool:
        """Whether a step is running."""
        return self._running

    @property
    def pressing(self) -> bool:
        """Whether a step with work due soon is running, or ended less than ``LULL_SECONDS`` ago."""
        return time.perf_counter() < self._pressed + LULL_SECONDS

    async def run(self, item: In) -> Out:
        """Return the model's result for one item, by the current task's deadline, or at once without one.

        Cancelling ends the wait: a job that has not started never runs, and the result of a running one is
        dropped. Raises Overloaded if the queue is full and ModelError if the engine is closed. A
        PipelineError of the step is raised unchanged; any other error becomes the cause of a ModelError.
        """
        loop = asyncio.get_running_loop()
        urgent = deadline.current.get() or Deadline(due=loop.time())
        call = call_id.current.get()
        waits = queue_waits.current.get()
        job: _Job[In, Out] = _Job(item, urgent, loop, loop.create_future(), time.perf_counter(), call, waits)
        with self._news:
            if self._closed:
                raise ModelError(self.name, "the engine is closed")
            if self.waiting >= self._max_waiting:
                raise Overloaded(f"{self._max_waiting} jobs are waiting already", self.name)
            self._jobs.append(job)
            self._came += 1
            self._news.notify()
        return await job.result

    def close(self) -> None:
        """Finish the running step, fail the waiting jobs with ModelError, and end the thread."""
        with self._news:
            self._closed = True
            self._news.notify()
        self._thread.join()

    def _work(self) -> None:
        while not self._closed:
            if batch := self._take():
                self._run(batch, batch[0].left() <= deadline.GUESS_SECONDS)
        for job in self._jobs:
            _answer(job, None, ModelError(self.name, "the engine is closed"))

    def _named(self, error: Exception) -> Exception:
        if isinstance(error, PipelineError):
            return error
        failure = ModelError(self.name, str(error) or type(error).__name__)
        failure.__cause__ = error
        return failure

    def _take(self) -> list[_Job[In, Out]]:
        with self._news:
            self._news.wait_for(lambda: self._closed or self._jobs)
            returning = self._ended + RETURN_SECONDS - time.perf_counter()
            if returning > 0.0:
                self._news.wait_for(lambda: self._closed or self._came >= self._expected, returning)
            if self._closed:
                return []
            live = [job for job in self._jobs if not job.result.cancelled()]
            self.stats.dropped += len(self._jobs) - len(live)
            kinds = [(job.left(), self._alike(job.item, job.deadline.due is not None)) for job in live]
            batch = [live[place] for place in deadline.first(kinds, self._max_batch)]
            self._jobs = [job for job in live if job not in batch]
            return batch

    def _run(self, jobs: list[_Job[In, Out]], pressing: bool) -> None:
        began = time.perf_counter()
        self._running = True
        self._pressed = math.inf if pressing else self._pressed
        self.stats.waited += sum(began - job.came for job in jobs)
        for job in jobs:
            if job.waits is not None:
                job.waits[self.name] = job.waits.get(self.name, 0.0) + began - job.came
        results: Sequence[Out | None] = [None] * len(jobs)
        failure = None
        call_id.current.set(call_id.joined(job.call for job in jobs))
        try:
            results = self._step([job.item for job in jobs])
            if len(results) != len(jobs):
                raise ModelError(self.name, f"the step answered {len(results)} of {len(jobs)} jobs")
        except Exception as error:
            results, failure = [None] * len(jobs), self._named(error)
        self._ended = time.perf_counter()
        self._running = False
        self._pressed = self._ended if pressing else self._pressed
        self.stats.busy += self._ended - began
        self.stats.pressing += (self._ended - began) * pressing
        self.stats.steps += 1
        self.stats.jobs += len(jobs)
        self.stats.batches[len(jobs)] = self.stats.batches.get(len(jobs), 0) + 1
        self.stats.failed += failure is not None
        self._expected = self._came + len(jobs)
        for job, result in zip(jobs, results, strict=True):
            _answer(job, result, failure)


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
        pass  # the loop is closed, so no caller waits for the result
