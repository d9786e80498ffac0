"""Limits per API key: concurrent calls, and calls and requests begun in a minute."""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass
from http import HTTPStatus

from rejoinder.agent.server.denial import Denial

MINUTE = 60.0
"""The period of the rate limits, in seconds."""
BUSY_SECONDS = 10
"""Value of ``Retry-After`` where another call has to end first, in seconds."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """The limits of one key; 0 stands for no limit.

    sessions: concurrent calls. per_minute: calls and requests begun in any 60 s.
    """

    sessions: int = 0
    per_minute: int = 0


def own_allowances(api_keys: str) -> dict[str, Allowance]:
    """Return the allowances that the setting gives to single keys: ``HASH:SESSIONS:PER_MINUTE``."""
    parts = [one.split(":") for one in api_keys.split()]
    return {hash_: Allowance(int(rest[0]), int(rest[1])) for hash_, *rest in parts if rest}


class Limits:
    """The current use of each key. It does no I/O and has no clock: times are arguments, in seconds.

    usual: the allowance of keys without an entry in ``own``. Clients without a key are not counted, so memory
    is bounded by the number of keys and their calls in a minute.
    """

    def __init__(self, usual: Allowance, own: Mapping[str, Allowance] | None = None) -> None:
        self._usual = usual
        self._own = dict(own or {})
        self._held: Counter[str] = Counter()
        self._begun: dict[str, deque[float]] = {}

    def begin(self, owner: str, now: float) -> Denial | None:
        """Count a call until ``end``, or return why it may not begin. A refused call does not count.

        owner: the hash of the key, "" for none.
        """
        sessions = self._of(owner).sessions
        if owner and sessions and self._held[owner] >= sessions:
            reason = f"this key may hold no more calls at once than {sessions}"
            return Denial(HTTPStatus.TOO_MANY_REQUESTS, reason, BUSY_SECONDS)
        denial = self.ask(owner, now)
        if owner and not denial:
            self._held[owner] += 1
        return denial

    def hold(self, owner: str) -> None:
        """Count a call that goes on without a socket, until ``end``. The limits do not apply to it."""
        if owner:
            self._held[owner] += 1

    def end(self, owner: str) -> None:
        """Stop counting a call."""
        self._held[owner] -= 1
        if self._held[owner] <= 0:
            del self._held[owner]

    def ask(self, owner: str, now: float) -> Denial | None:
        """Count a text request, or return why it may not be made."""
        most = self._of(owner).per_minute
        if not owner or not most:
            return None
        begun = self._begun.setdefault(owner, deque())
        while begun and now - begun[0] >= MINUTE:
            begun.popleft()
        if len(begun) >= most:
            seconds = max(1, math.ceil(begun[0] + MINUTE - now))
            reason = f"this key may begin no more calls and requests in a minute than {most}"
            return Denial(HTTPStatus.TOO_MANY_REQUESTS, reason, seconds)
        begun.append(now)
        return None

    def _of(self, owner: str) -> Allowance:
        return self._own.get(owner, self._usual)
