"""A language model behind a network that is away when the server starts."""

from __future__ import annotations

import asyncio
import logging

from tenacity import AsyncRetrying, retry_if_exception_type, wait_exponential

from rejoinder.models.loading import Away, Report, warm_llm
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.interfaces import Llm

log = logging.getLogger(__name__)

FIRST_SECONDS, LONGEST_SECONDS = 0.5, 15.0
"""Between two tries to reach it: each wait is twice as long as the one before."""


UNREACHABLE = "the language model does not answer: the log says why"
"""What everybody may read: not where the model is."""


class Absence:
    """A language model behind a network that does not answer at the start, until it does.

    reason: why it is away, "" where none is. missed: takes its name when it is away. report: takes it when it
    answers.
    """

    def __init__(self, missed: Away, report: Report) -> None:
        self.reason = ""
        self._missed = missed
        self._report = report
        self._spec = ""

    def begin(self, spec: str, error: ModelError) -> None:
        """Note that it is away."""
        self._spec, self.reason = spec, UNREACHABLE
        log.warning("the language model does not answer: %s; trying again until it does", error)
        self._missed(spec, error)

    async def end(self, llm: Llm) -> None:
        """Try to reach it until it answers; it is told once. Cancelling gives up."""
        if not self.reason:
            return
        loop = asyncio.get_running_loop()
        waits = wait_exponential(multiplier=FIRST_SECONDS, max=LONGEST_SECONDS)
        async for attempt in AsyncRetrying(wait=waits, retry=retry_if_exception_type(ModelError)):
            with attempt:
                began = loop.time()
                await warm_llm(llm)
        self.reason = ""
        log.warning("the language model answers now")
        self._report(self._spec, loop.time() - began)
