"""An engine runs one model on one thread for many sessions, without blocking the event loop."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections.abc import Callable, Hashable, Sequence
from typing import Generic

from rejoinder.pipeline.engines import call_id, queue_waits
from rejoinder.pipeline.engines import deadline as deadline
from rejoinder.pipeline.engines.deadline import Deadline
from rejoinder.pipeline.engines.jobs import EngineJob, In, Out, answer
from rejoinder.pipeline.engines.steps import EngineStats, EngineStep, slow_after
from rejoinder.pipeline.errors import ModelError, Overloaded, PipelineError

log = logging.getLogger(__name__)

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
HUNG_THREADS = 2
"""Most threads of an engine that are slow or hang while another one goes on. Each holds its step's memory."""
ENGINE_CLOSE_SECONDS = 5.0
"""Longest wait for the running step when an engine is closed, in seconds."""
FAILURES_IN_A_ROW = 5
"""An engine counts as failing after this number of failed steps without one that succeeds."""


class Engine(Generic[In, Out]):
    """Runs ``step(batch)`` on a thread that owns the model.

    The job with the earliest ``Deadline`` runs first, in a batch of at most ``max_batch`` jobs of its kind.
    An idle engine adds no delay. A busy engine forms batches from the jobs that wait. An engine knows nothing
    of conversations.

    name: the adapter's name in errors. current_step: the step that runs, None between steps.
    step: computes one result per item, in order.
    max_waiting: most jobs that wait, cancelled ones not counted; one more raises Overloaded.
    alike: returns the kind of an item; only items of equal kinds share a batch. Its second argument is
        whether the work is certainly needed.
    shares_state: whether steps change state that other steps use, such as a cache, or wait for each other in
        the runtime. While a step of such an engine is slow or hangs, no other step runs. Where it is False,
        another thread then runs steps for other calls.
    """

    def __init__(
        self,
        name: str,
        step: Callable[[Sequence[In]], Sequence[Out]],
        max_batch: int = 1,
        max_waiting: int = MOST_WAITING,
        alike: Callable[[In, bool], Hashable] = lambda item, sure: None,
        shares_state: bool = True,
    ) -> None:
        self.name = name
        self.stats = EngineStats()
        self.current_step: EngineStep | None = None
        self._step = step
        self._max_batch = max_batch
        self._max_waiting = max_waiting
        self._alike = alike
        self._shares_state = shares_state
        self._jobs: list[EngineJob[In, Out]] = []
        self._running: list[EngineJob[In, Out]] = []
        self._news = threading.Condition()
        self._closed = False
        self._came = self._expected = 0
        self._ended = self._timed = 0.0
        self._pressed = -math.inf
        self._slow: dict[EngineStep, list[EngineJob[In, Out]]] = {}
        self._hung: set[EngineStep] = set()
        self._last_error = ""
        with self._news:
            self._thread: threading.Thread | None = self._start()

    def _start(self) -> threading.Thread | None:
        """Start a thread that works; return None where the system has no room for one."""
        thread = threading.Thread(target=self._work, daemon=True, name=f"engine-{self.name}")
        try:
            thread.start()
        except RuntimeError as error:
            log.error("%s gets no thread: %s", self.name, error)
            return None
        return thread

    @property
    def waiting(self) -> int:
        """The number of jobs that no step has taken yet; it may include cancelled ones."""
        return len(self._jobs)

    @property
    def age(self) -> float:
        """The seconds that the oldest job has waited that no slow step holds back, 0 if there is none."""
        with self._news:
            oldest = next((job.came for job in self._ready() if not job.result.cancelled()), None)
        return 0.0 if oldest is None else time.perf_counter() - oldest

    @property
    def running(self) -> bool:
        """Whether a step is running whose jobs wait for it."""
        return self.current_step is not None or bool(self._slow)

    @property
    def pressing(self) -> bool:
        """Whether a step with work due soon is running, or ended less than ``LULL_SECONDS`` ago."""
        recently = time.perf_counter() < self._pressed + LULL_SECONDS
        return recently or any(step.pressing for step in self.running_steps)

    @property
    def running_steps(self) -> list[EngineStep]:
        """The steps that run, and whose jobs wait for them: the current one, and those handed over."""
        with self._news:
            return [*self._slow, *([self.current_step] if self.current_step else [])]

    @property
    def hung(self) -> int:
        """The number of steps that were given up and have not ended."""
        return len(self._hung)

    @property
    def trouble(self) -> str:
        """Why the engine serves no job, or none of the last ones; "" while it is healthy."""
        if self._thread is None and not self._closed:
            return f"{self.name} has no thread: {self.hung} of its steps have not ended"
        if self.stats.in_a_row >= FAILURES_IN_A_ROW:
            return f"{self.name} has failed {self.stats.in_a_row} times in a row: {self._last_error}"
        return ""

    async def run(self, item: In) -> Out:
        """Return the model's result for one item, by the current task's deadline, or at once without one.

        Cancelling ends the wait: a job that has not started never runs, and the result of a running one is
        dropped. Raises Overloaded if the queue is full. Raises ModelError if the engine is closed, if it
        hangs, and if the step is given up. A PipelineError of the step is raised unchanged; any other error
        becomes the cause of a ModelError.
        """
        loop = asyncio.get_running_loop()
        urgent = deadline.current.get() or Deadline(due=loop.time())
        call = call_id.current.get()
        job: EngineJob[In, Out] = EngineJob(
            item, urgent, loop, loop.create_future(), time.perf_counter(), call, queue_waits.current.get()
        )
        with self._news:
            if self._closed:
                raise ModelError(self.name, "the engine is closed")
            if self._thread is None and not self._hung:  # none could be started
                self._thread = self._start()
            if self._thread is None:
                raise self._hangs()
            if self.waiting >= self._max_waiting:
                self._drop_cancelled()
            if self.waiting >= self._max_waiting:
                raise Overloaded(f"{self._max_waiting} jobs are waiting already", self.name)
            self._jobs.append(job)
            self._came += 1
            self._news.notify()
        return await job.result

    def slow_after(self, most: float) -> float:
        """Return the seconds after which a step of this engine is slow, ``most`` at most."""
        with self._news:  # the threads add durations
            return slow_after(self.stats.recent, most)

    @property
    def longest(self) -> float:
        """The seconds of the longest of the last steps."""
        with self._news:
            return max(self.stats.recent, default=0.0)

    def hand_over(self, step: EngineStep) -> bool:
        """Let another thread take the jobs of other calls while a slow step goes on; return whether it does.

        Nothing is lost where the step ends after all: its jobs get its results, and its thread ends. The jobs
        of its own calls wait for it, since they may use the same state. There is no other thread where steps
        share state, where ``HUNG_THREADS`` are slow or hang already, or where no job of another call waits.
        """
        with self._news:
            if self.current_step is not step or self._thread is None or self._shares_state:
                return False
            if len(self._slow) + self.hung >= HUNG_THREADS:
                return False
            self._slow[step] = self._running
            waits = not all(job.result.cancelled() for job in self._ready())
            if not waits or (thread := self._start()) is None:  # it begins when this lock is free
                del self._slow[step]
                return False
            self._running, self.current_step, self._thread = [], None, thread
            self.stats.handed_over += 1
        return True

    def give_up(self, step: EngineStep) -> bool:
        """Fail the jobs of a step that does not end; return whether it was still running.

        Python cannot end a thread, so the thread stays until its step ends, and the result is dropped.
        Another thread goes on. There is none where steps share state, or where ``HUNG_THREADS`` hang already:
        then all jobs fail at once with ``model_timeout``, until a step that hung has ended.
        """
        with self._news:
            self._pass_time()
            if (handed_over := self._slow.pop(step, None)) is not None:
                self._fail(handed_over, self._hangs())
                self._news.notify_all()  # the jobs of its calls need not wait any longer
            elif self.current_step is step and self._thread is not None:
                self._fail_running(self._hangs())
            else:
                return False
            self._hung.add(step)
            self._count_failure("a step did not end")
            if handed_over is not None:
                return True  # another thread works already
            self._replace(self._shares_state or len(self._slow) + self.hung > HUNG_THREADS)
        return True

    def _replace(self, is_alone: bool = False) -> None:
        """Let another thread go on, or fail the jobs that wait. is_alone: there may be no other thread."""
        self._thread = None if is_alone else self._start()
        if self._thread is not None:
            self.stats.replaced += 1
            return
        waiting, self._jobs = self._jobs, []
        self._fail(waiting, self._hangs())

    def close(self) -> None:
        """Finish the running step, fail the waiting jobs with ModelError, and end the thread.

        Steps that do not end within ``ENGINE_CLOSE_SECONDS`` are left behind.
        """
        end = time.perf_counter() + ENGINE_CLOSE_SECONDS
        with self._news:
            self._closed = True
            thread, self._thread = self._thread, None
            self._news.notify_all()
        if thread is not None:
            thread.join(ENGINE_CLOSE_SECONDS)
        with self._news:
            ended = self._news.wait_for(lambda: not self._slow, max(end - time.perf_counter(), 0.0))
            if not ended or (thread is not None and thread.is_alive()):
                log.warning("%s does not finish its step, and is left behind", self.name)
            slow, self._slow = self._slow, {}
            closed = ModelError(self.name, "the engine is closed")
            self._fail_running(closed)
            self._fail([*(job for jobs in slow.values() for job in jobs), *self._jobs], closed)

    def _hangs(self) -> ModelError:
        return ModelError(self.name, "a step of the engine does not end", "model_timeout")

    def _count_failure(self, reason: str) -> None:
        self.stats.failed += 1
        self.stats.in_a_row += 1
        self._last_error = reason

    def _fail(self, jobs: Sequence[EngineJob[In, Out]], error: Exception) -> None:
        for job in jobs:
            answer(job, None, error)

    def _fail_running(self, error: Exception) -> None:
        jobs, self._running, self.current_step = self._running, [], None
        self._fail(jobs, error)

    def _work(self) -> None:
        """Run steps until the engine is closed, or until another thread has taken over."""
        me, reason = threading.current_thread(), "it was ended"
        try:
            while (batch := self._take(me)) is not None:
                if batch:
                    self._run(batch, batch[0].left() <= deadline.GUESS_SECONDS)
        except BaseException as error:
            reason = repr(error)
        finally:
            self._leave(me, reason)

    def _leave(self, me: threading.Thread, reason: str) -> None:
        """End a thread. If it was the one that works, its jobs fail and another one replaces it."""
        with self._news:
            if self._thread is not me:
                return
            log.error("the thread of %s has ended, and another one replaces it: %s", self.name, reason)
            if not self._running:  # it ended while it chose: the next thread may fail at the same job
                self._running, self._jobs = self._jobs, []
            self._fail_running(ModelError(self.name, f"its thread has ended: {reason}"))
            self._count_failure(f"its thread has ended: {reason}")
            self._replace()

    def _named(self, error: BaseException) -> Exception:
        if isinstance(error, PipelineError):
            return error
        failure = ModelError(self.name, str(error) or type(error).__name__)
        failure.__cause__ = error
        return failure

    def _take(self, me: threading.Thread) -> list[EngineJob[In, Out]] | None:
        """Wait for jobs, and return the next batch; None where this thread does not work any more."""
        with self._news:
            if self._thread is not me:
                return None
            self._news.wait_for(lambda: self._closed or self._ready())
            returning = self._ended + RETURN_SECONDS - time.perf_counter()
            if returning > 0.0:
                self._news.wait_for(lambda: self._closed or self._came >= self._expected, returning)
            if self._closed:
                return None
            self._drop_cancelled()
            ready = self._ready()
            kinds = [(job.left(), self._alike(job.item, job.deadline.due is not None)) for job in ready]
            batch = [ready[place] for place in deadline.first(kinds, self._max_batch)]
            self._jobs = [job for job in self._jobs if job not in batch]
            self._running = batch
            return batch

    def _ready(self) -> list[EngineJob[In, Out]]:
        """Return the jobs that may run now. The calls of a slow step wait for it."""
        if not self._slow:
            return self._jobs
        held = {job.call for jobs in self._slow.values() for job in jobs}
        return [job for job in self._jobs if job.call not in held or not job.call]  # "": of no call

    def _drop_cancelled(self) -> None:
        live = [job for job in self._jobs if not job.result.cancelled()]
        self.stats.dropped += len(self._jobs) - len(live)
        self._jobs = live

    def _run(self, jobs: list[EngineJob[In, Out]], pressing: bool) -> None:
        began = time.perf_counter()
        self.stats.waited += sum(began - job.came for job in jobs)
        for job in jobs:
            if job.waits is not None:
                job.waits[self.name] = job.waits.get(self.name, 0.0) + began - job.came
        results: Sequence[Out | None] = [None] * len(jobs)
        failure = None
        calls = call_id.joined(job.call for job in jobs)
        call_id.current.set(calls)
        step = EngineStep(began, threading.get_ident(), calls, pressing)
        with self._news:
            self._pass_time()
            self.current_step = step
        try:
            results = self._step([job.item for job in jobs])
            if len(results) != len(jobs):
                raise ModelError(self.name, f"the step answered {len(results)} of {len(jobs)} jobs")
        except BaseException as error:  # tokenizers, in Rust, panic with one that is no Exception
            results, failure = [None] * len(jobs), self._named(error)
        waits = False
        try:
            with self._news:
                self._pass_time()
                waits = self._end(step)
                if waits:
                    self._count(jobs, step, failure)
        finally:  # whatever happens, each caller that waits gets its answer
            for job, result in zip(jobs, results, strict=True) if waits else ():
                answer(job, result, failure)

    def _end(self, step: EngineStep) -> bool:
        """End a step; return whether its jobs wait for it. Those of a step that was given up are answered."""
        if self.current_step is step:
            self._running, self.current_step = [], None
            return True
        if self._thread is None and not self._closed:  # all others hang
            self._thread = threading.current_thread()
        self._hung.discard(step)
        self._news.notify_all()  # the jobs of its calls may run
        return self._slow.pop(step, None) is not None

    def _pass_time(self) -> None:
        """Add the time since a step last began or ended to the totals, if one ran in it."""
        now, running = time.perf_counter(), [*self._slow]
        running += [self.current_step] if self.current_step else []
        self.stats.busy += (now - self._timed) * bool(running)
        self.stats.pressing += (now - self._timed) * any(step.pressing for step in running)
        self._timed = now

    def _count(self, jobs: list[EngineJob[In, Out]], step: EngineStep, failure: Exception | None) -> None:
        self._ended = self._timed
        seconds = self._ended - step.began
        self._pressed = self._ended if step.pressing else self._pressed
        self.stats.recent.append(seconds)
        self.stats.steps += 1
        self.stats.jobs += len(jobs)
        self.stats.batches[len(jobs)] += 1
        self._expected = self._came + len(jobs)
        if failure is None:
            self.stats.in_a_row = 0
        else:
            self._count_failure(str(failure))
