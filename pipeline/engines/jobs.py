"""The jobs of an engine: one item of a caller, and the future for its result."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Generic, TypeVar

from rejoinder.pipeline.engines.deadline import Deadline

In = TypeVar("In")
Out = TypeVar("Out")


@dataclass(slots=True, eq=False)
class EngineJob(Generic[In, Out]):
    """One item, and who waits for its result.

    came: when it came, in seconds of ``time.perf_counter``. call: the id of its call, "" for none. waits: of
    ``queue_waits``.
    """

    item: In
    deadline: Deadline
    loop: asyncio.AbstractEventLoop
    result: asyncio.Future[Out]
    came: float
    call: str
    waits: dict[str, float] | None

    def left(self) -> float:
        """Return the seconds left until it is due."""
        return self.deadline.left(self.loop.time())


def answer(job: EngineJob[In, Out], result: Out | None, error: Exception | None) -> None:
    """Pass the result of a job to its caller, from any thread."""

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
