"""Sends requests to carriers: with time limits, repeated where that is safe, secrets kept out of the log."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import httpx2
from tenacity import AsyncRetrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from rejoinder.agent.app.tool import ToolError
from rejoinder.agent.logs import one_line
from rejoinder.agent.wires.phone.control.api import HttpRequest

log = logging.getLogger(__name__)

CARRIER_ANSWER_S = 5.0
"""Longest wait for one answer, in seconds."""
ACTION_S = 12.0
"""Longest time of a request with its repetitions, in seconds: a caller waits for it."""
ATTEMPTS = 3
"""Most attempts of one request."""
NOT_TAKEN = (429, 503)
"""HTTP statuses of requests that were not carried out: any request may be sent again."""
UNCERTAIN = (500, 502, 504)
"""HTTP statuses of requests that may have been carried out."""
MOST_SHOWN = 300
"""Most characters of a carrier's error in the log."""


class Rejected(Exception):
    """A carrier answered with an error status."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class CarrierClient:
    """The connections to all carriers."""

    def __init__(self) -> None:
        self._http = httpx2.AsyncClient(timeout=CARRIER_ANSWER_S, follow_redirects=False)

    async def aclose(self) -> None:
        """Close the connections. Cancelling leaves them to the operating system."""
        await self._http.aclose()

    async def send(self, carrier: str, request: HttpRequest) -> Any:
        """Send a request; return the JSON of the answer, None if it has none.

        carrier: its name. Raises ToolError, for the language model; the log has the reason. Cancelling stops
        waiting, and the carrier may act all the same.
        """
        try:
            async with asyncio.timeout(ACTION_S):
                async for attempt in AsyncRetrying(
                    stop=stop_after_attempt(ATTEMPTS),
                    wait=wait_random_exponential(multiplier=0.2, max=2.0),
                    retry=retry_if_exception(lambda error: may_repeat(error, request.again)),
                    reraise=True,
                ):
                    with attempt:
                        return await self._once(request)
        except Rejected as error:
            self._note(carrier, request, f"HTTP {error.status}: {error}")
            raise ToolError(f"{carrier} refused it (HTTP {error.status}).") from None
        except (httpx2.TransportError, httpx2.InvalidURL, TimeoutError) as error:
            self._note(carrier, request, str(error) or type(error).__name__)
            raise ToolError(f"{carrier} did not answer. It may not have been done.") from None
        raise AssertionError("AsyncRetrying returns or raises")

    async def _once(self, request: HttpRequest) -> Any:
        answer = await self._http.request(
            request.method,
            request.url,
            headers={"Authorization": request.authorization},
            json=request.json,
            data=request.form,
        )
        if answer.is_success:
            try:
                return answer.json() if answer.content else None
            except ValueError:
                return None
        raise Rejected(answer.status_code, one_line(answer.text)[:MOST_SHOWN])

    def _note(self, carrier: str, request: HttpRequest, reason: str) -> None:
        log.warning("%s: %s %s: %s", carrier, request.method, request.url.partition("?")[0], reason)


def may_repeat(error: BaseException, again: bool) -> bool:
    """Return whether a request that failed with this error may be sent again.

    again: whether that is safe if it was carried out.
    """
    match error:
        case httpx2.ConnectError() | httpx2.ConnectTimeout():
            return True
        case httpx2.TransportError():
            return again
        case Rejected(status=status):
            return status in NOT_TAKEN or (again and status in UNCERTAIN)
    return False
