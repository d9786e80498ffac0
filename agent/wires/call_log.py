"""Log lines about calls: one when a call begins, one when it ends, and one for each refused call."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass

from rejoinder.agent.logs import one_line

log = logging.getLogger(__name__)

NAMED = 8
"""Digits of a key's hash in the log."""
SHOWN_DIGITS = 3
"""Last digits of a caller's telephone number in the log: enough to find a known call, too few to identify a
person."""
MAX_REASON = 300
"""Most characters of a reason: it may quote what a client sent."""
MAX_HOST = 64
"""Most characters of an address: it may come from a proxy's header, which any program on this machine can
send."""

Address = tuple[str, int] | None
"""The host and the port of a client, None where they are unknown."""


def host(client: Address) -> str:
    """Return a client's host for the log."""
    return one_line(client[0])[:MAX_HOST] if client else "an unknown address"


@dataclass(frozen=True, slots=True)
class LoggedCaller:
    """A caller for the log.

    key: the beginning of the key's hash. number: the last digits of the telephone number. Both may be "".
    """

    key: str = ""
    host: str = ""
    number: str = ""

    def __str__(self) -> str:
        """Return the caller as text, "" for one of whom nothing is known."""
        if not self.host:
            return ""
        parts = [f"key {self.key}" if self.key else "no key", self.host]
        return ", ".join([*parts, f"number ending in {self.number}"] if self.number else parts)

    def fields(self) -> dict[str, str]:
        """Return what is known of the caller, for lines in JSON."""
        return {name: value for name, value in (("key_hash", self.key), ("address", self.host)) if value}


UNKNOWN_CALLER = LoggedCaller()
"""A caller of whom nothing is known."""


def caller(client: Address, owner: str, number: str = "") -> LoggedCaller:
    """Return a caller for the log. owner: the hash of the API key that the call counts for, "" for none."""
    digits = "".join(filter(str.isdigit, number.partition("@")[0]))[-SHOWN_DIGITS:]
    return LoggedCaller(owner[:NAMED], host(client), digits)


def log_refused(where: str, client: Address, reason: str) -> None:
    """Log a refused call. where: the path or the port that was called."""
    reason, where = one_line(reason)[:MAX_REASON], one_line(where[:64])
    about = {"path": where, "reason": reason, "address": host(client)}
    log.warning("a call to %s was refused: %s (%s)", where, reason, host(client), extra=about)


class CallLog:
    """The log lines of one call.

    id: the client's identifier of the call. wire: the name of its protocol. now: returns seconds of any
    clock. turns: number of replies that have begun.
    """

    def __init__(self, id_: str, wire: str, caller: LoggedCaller, now: Callable[[], float]) -> None:
        self.turns = 0
        self.id = one_line(id_)
        self._about = ", ".join(filter(None, (wire, str(caller))))
        self._fields = {"wire": wire, **caller.fields()}
        self._now = now
        self._began = now()
        self._lost: float | None = None

    def begin(self) -> None:
        """Log that the call begins."""
        log.info("call %s began: %s", self.id, self._about, extra=self._fields)

    def lose(self, reason: str, seconds: float) -> None:
        """Log that the socket is lost and the call waits for its client. Further calls log nothing."""
        if self._lost is None:
            self._lost = self._now()
            log.info("call %s lost its socket: %s; it waits %g s for its client", self.id, reason, seconds)

    def come_back(self, client: Address) -> None:
        """Log that the call goes on over another socket."""
        after = "" if self._lost is None else f" after {self._now() - self._lost:.1f} s"
        self._lost = None
        log.info("call %s came back%s: %s", self.id, after, host(client))

    def end(self, reason: str, level: int = logging.INFO, error: Exception | None = None) -> None:
        """Log that the call is over, and why. error: an unexpected error, logged with its traceback."""
        seconds, turns = self._now() - self._began, f"{self.turns} turn{'s' * (self.turns != 1)}"
        said = one_line(reason)[:MAX_REASON]
        about = (self.id, self._about, seconds, turns, said)
        fields = {**self._fields, "seconds": round(seconds, 3), "turns": self.turns, "reason": said}
        log.log(level, "call %s ended: %s, %.1f s, %s: %s", *about, exc_info=error, extra=fields)
