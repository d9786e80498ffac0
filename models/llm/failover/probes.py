"""Background probes of models whose breaker is open."""

from __future__ import annotations

import asyncio
import logging
from contextvars import Context

from rejoinder.models.llm.failover.candidate import Candidate
from rejoinder.models.llm.warming import probe_llm

log = logging.getLogger(__name__)


class Probes:
    """Asks each model whose breaker is open for one token from time to time, until it answers in time.

    A probe belongs to no reply, so it outlives the one that opened the breaker; ``aclose`` ends all of them.
    """

    def __init__(self) -> None:
        self._tasks: dict[Candidate, asyncio.Task[None]] = {}

    def begin(self, candidate: Candidate) -> None:
        """Probe a model until its breaker closes, if that does not happen already."""
        if candidate not in self._tasks:
            # An empty context: the reply's deadline and trace are not the probe's.
            probing = asyncio.get_running_loop().create_task(
                self._probe(candidate), name=f"probe {candidate.name}", context=Context()
            )
            self._tasks[candidate] = probing
            probing.add_done_callback(lambda _: self._tasks.pop(candidate, None))

    async def aclose(self) -> None:
        """End all probes. Cancelling may leave one running."""
        for task in (tasks := list(self._tasks.values())):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _probe(self, candidate: Candidate) -> None:
        breaker = candidate.breaker
        while wait := breaker.probe_wait:
            await asyncio.sleep(wait)
            try:
                async with asyncio.timeout(candidate.deadline(is_last=False)):
                    await probe_llm(candidate.llm)
            except Exception as error:  # whatever it is: the model does not answer
                log.debug("%s does not answer a probe: %r", candidate.name, error)
                breaker.probed(succeeded=False)
            else:
                breaker.probed(succeeded=True)
                log.warning("%s answers again", candidate.name)
