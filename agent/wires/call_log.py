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
    """A caller for the log: the beginning of the key's hash, the host, and the end of the phone number."""

    key: str = ""
    address: str = ""
    number: str = ""

    def __str__(self) -> str:
        """Return the caller as text, "" where nothing is known."""
        if not self.address:
            return ""
        parts = [f"key {self.key}" if self.key else "no key", self.address]
        return ", ".join([*parts, f"number ending in {self.number}"] if self.number else parts)

    @property
    def fields(self) -> dict[str, str]:
        """The known fields, for a log in JSON."""
        known = {"key_hash": self.key, "address": self.address, "number_end": self.number}
        return {name: value for name, value in known.items() if value}


def caller(client: Address, owner: str, number: str = "") -> LoggedCaller:
    """Return a caller for the log.

    owner: the hash of the API key that the call counts for, "" for none.
    """
    digits = "".join(filter(str.isdigit, number.partition("@")[0]))[-SHOWN_DIGITS:]
    return LoggedCaller(owner[:NAMED], host(client), digits)


def refused(where: str, client: Address, reason: str) -> None:
    """Log a refused call. where: the path or the port that was called."""
    _refused("a call to %s was refused: %s (%s)", where, client, reason, {})


def refused_request(where: str, client: Address, status: int, reason: str) -> None:
    """Log a refused or failed HTTP request. where: its path."""
    _refused(f"a request to %s was refused ({status}): %s (%s)", where, client, reason, {"status": status})


def _refused(message: str, where: str, client: Address, reason: str, more: dict[str, int]) -> None:
    path, said = one_line(where[:64]), one_line(reason)[:MAX_REASON]
    fields = {"path": path, "reason": said, "address": host(client), **more}
    log.warning(message, path, said, host(client), extra=fields)


class CallLog:
    """The log lines of one call.

    id: the client's identifier of the call, in one line. wire: the name of its protocol. caller: who calls.
    now: returns seconds of any clock. turns: number of replies that have begun. longest_silence: the longest
    wait of the caller for the agent's next audio, in seconds.
    """

    def __init__(self, id_: str, wire: str, caller: LoggedCaller, now: Callable[[], float]) -> None:
        self.turns = 0
        self.longest_silence = 0.0
        self.id = one_line(id_)
        self._about = f"{wire}, {caller}" if str(caller) else wire
        self._fields: dict[str, str | int | float] = {"call": self.id, "wire": wire, **caller.fields}
        self._now = now
        self._began = now()
        self._lost: float | None = None

    @property
    def seconds(self) -> float:
        """The seconds since the call began."""
        return self._now() - self._began

    def begin(self) -> None:
        """Log that the call begins."""
        log.info("call %s began: %s", self.id, self._about, extra=self._fields)

    def lose(self, reason: str, seconds: float) -> None:
        """Log that the socket is lost and the call waits for its client. Further calls log nothing."""
        if self._lost is None:
            self._lost = self._now()
            message = "call %s lost its socket: %s; it waits %g s for its client"
            log.info(message, self.id, reason, seconds, extra=self._fields | {"reason": reason})

    def come_back(self, client: Address) -> None:
        """Log that the call goes on over another socket."""
        after = "" if self._lost is None else f" after {self._now() - self._lost:.1f} s"
        self._lost = None
        fields = self._fields | {"address": host(client)}
        log.info("call %s came back%s: %s", self.id, after, host(client), extra=fields)

    def end(self, reason: str, level: int = logging.INFO, error: Exception | None = None) -> None:
        """Log that the call is over, and why. error: an unexpected error, logged with its traceback."""
        turns = f"{self.turns} turn{'s' * (self.turns != 1)}"
        if self.longest_silence:
            turns += f", longest silence {self.longest_silence:.1f} s"
        said = one_line(reason)[:MAX_REASON]
        about = (self.id, self._about, self.seconds, turns, said)
        fields = self._fields | {"seconds": round(self.seconds, 3), "turns": self.turns, "reason": said}
        if self.longest_silence:
            fields["longest_silence_s"] = round(self.longest_silence, 3)
        log.log(level, "call %s ended: %s, %.1f s, %s: %s", *about, exc_info=error, extra=fields)
