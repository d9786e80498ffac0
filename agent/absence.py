"""A language model behind a network that is away when the server starts."""

from __future__ import annotations

import asyncio
import logging

from rejoinder.models.loading import Away, Report, warm_llm
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.interfaces import Llm

log = logging.getLogger(__name__)

FIRST_SECONDS, LONGEST_SECONDS = 0.5, 15.0
"""Between two tries to reach it: each wait is twice as long as the one before."""


class Absence:
    """A language model behind a network that does not answer at the start, until it does.

    reason: why it is away, "" where none is. missed: called when it is away. report: called when it answers.
    """

    def __init__(self, missed: Away, report: Report) -> None:
        self.reason = ""
        self._missed = missed
        self._report = report
        self._spec = ""

    def begin(self, spec: str, error: ModelError) -> None:
        """Note that it is away."""
        self._spec, self.reason = spec, _reason(error)
        log.warning("%s; trying again until it does", self.reason)
        self._missed(spec, error)

    async def end(self, llm: Llm) -> None:
        """Try to reach it until it answers; that is told once. Cancelling gives up."""
        loop, wait = asyncio.get_running_loop(), FIRST_SECONDS
        while self.reason:
            await asyncio.sleep(wait)
            wait, began = min(2 * wait, LONGEST_SECONDS), loop.time()
            try:
                await warm_llm(llm)
            except ModelError as error:
                self.reason = _reason(error)  # it may be another one by now
            else:
                self.reason = ""
                log.warning("the language model answers now")
                self._report(self._spec, loop.time() - began)


def _reason(error: ModelError) -> str:
    return f"the language model does not answer: {error}"
