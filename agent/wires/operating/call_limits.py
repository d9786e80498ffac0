"""The limits of one call: its rate of messages, its audio and tokens, and how long its client is silent."""

from __future__ import annotations

from collections.abc import Callable

from rejoinder.pipeline import Event, Overloaded, ReplyDone

BURST_SECONDS = 10.0
"""Seconds over which the rate of messages is averaged: a client may send that many at once."""
SPENT_SECONDS = 0.2
"""Audio that is counted together, in seconds. A call ends with less than that uncounted."""


class CallLimits:
    """What one call may use. Times are arguments, in seconds.

    spend: takes the seconds of each piece of the caller's audio; raises Overloaded where no more is allowed.
    per_second: most messages of the client, 0 for no limit. silent: seconds without a message, 0.0 for any.
    write: takes the tokens that each reply used. used_up: returns why no further reply may be written, "" if
    one may.

    limited: whether there is any limit, and messages have to be counted. heard: audio that is not counted
    yet, in seconds.
    """

    def __init__(
        self,
        spend: Callable[[float], None] | None = None,
        per_second: int = 0,
        silent: float = 0.0,
        write: Callable[[int], None] = lambda tokens: None,
        used_up: Callable[[], str] = str,
    ) -> None:
        self.limited = bool(spend or per_second or silent)
        self.heard = 0.0
        self.spend = spend or (lambda seconds: None)
        self.write = write
        self.used_up = used_up
        self._per_second = per_second
        self._silent = silent
        self._left = per_second * BURST_SECONDS
        self._last: float | None = None

    def count(self, now: float) -> None:
        """Count a message of the client, and the audio of those before.

        Raises Overloaded for too many messages, and for too much audio.
        """
        if self._per_second:
            most = self._per_second * BURST_SECONDS
            since = 0.0 if self._last is None else now - self._last
            self._left = min(most, self._left + since * self._per_second) - 1.0
            if self._left < 0.0:
                raise Overloaded(f"the client sends more than {self._per_second} messages a second")
        self._last = now
        if self.heard >= SPENT_SECONDS:
            heard, self.heard = self.heard, 0.0
            self.spend(heard)

    def take(self, event: Event) -> None:
        """Count the tokens of a reply that has ended."""
        if isinstance(event, ReplyDone):
            self.write(event.spent)

    def too_silent(self, now: float) -> str:
        """Return why the call is to end, "" where it goes on. The first call starts the clock."""
        self._last = now if self._last is None else self._last
        if not self._silent or now - self._last < self._silent:
            return ""
        return f"the client has sent nothing for {self._silent:g} s"
