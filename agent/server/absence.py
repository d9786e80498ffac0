"""A remote language model that is unreachable when the server starts."""

from __future__ import annotations

import asyncio
import logging

from tenacity import AsyncRetrying, retry_if_exception_type, wait_exponential

from rejoinder.models.llm.warming import warm_llm
from rejoinder.models.loading import Report, Unreachable
from rejoinder.pipeline.errors import ModelError
from rejoinder.pipeline.interfaces import Llm

log = logging.getLogger(__name__)

FIRST_WAIT_SECONDS = 0.5
"""First wait between two attempts to reach the model. Each wait is twice as long as the one before."""
LONGEST_SECONDS = 15.0
"""Longest wait between two attempts."""


UNREACHABLE = "the language model does not answer: the log says why"
"""Public status. It does not contain the model's address."""


class Absence:
    """Keeps trying to reach a remote language model that does not answer when the server starts.

    reason: the public status while the model is unreachable, else "". missed: called with the model's spec
    and the error when it is unreachable. report: called with its spec and the seconds it took when it
    answers.
    """

    def __init__(self, missed: Unreachable, report: Report) -> None:
        self.reason = ""
        self._missed = missed
        self._report = report
        self._spec = ""

    def begin(self, spec: str, error: ModelError) -> None:
        """Record that the model is unreachable, and log why."""
        self._spec, self.reason = spec, UNREACHABLE
        log.warning("the language model does not answer: %s; trying again until it does", error)
        self._missed(spec, error)

    async def end(self, llm: Llm) -> None:
        """Try to reach the model until it answers, then report it. Cancelling stops trying."""
        if not self.reason:
            return
        loop = asyncio.get_running_loop()
        waits = wait_exponential(multiplier=FIRST_WAIT_SECONDS, max=LONGEST_SECONDS)
        async for attempt in AsyncRetrying(wait=waits, retry=retry_if_exception_type(ModelError)):
            with attempt:
                began = loop.time()
                await warm_llm(llm)
        self.reason = ""
        log.warning("the language model answers now")
        self._report(self._spec, loop.time() - began)
