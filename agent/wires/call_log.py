"""What the log says of calls: a line when one begins, one when it ends, and one for each that is refused."""

from __future__ import annotations

import logging
from collections.abc import Callable

from rejoinder.agent.logs import one_line

log = logging.getLogger(__name__)

NAMED = 8
"""Digits of a key's hash that name it."""
TOLD_DIGITS = 3
"""Of a caller's telephone number: enough to find one's own call, and to find nobody else's."""
MAX_REASON = 300
"""Characters of a reason: it may quote what a client sent."""
MAX_HOST = 64
"""Characters of an address: a proxy's header has it, and whoever is on this machine can send that."""

Address = tuple[str, int] | None
"""The host and the port of a client, where they are known."""


def host(client: Address) -> str:
    """Return the address of a client as the log has it."""
    return one_line(client[0])[:MAX_HOST] if client else "an unknown address"


def caller(client: Address, owner: str, number: str = "") -> str:
    """Return who calls: the key by the beginning of its hash, the address, and the end of a telephone number.

    owner: the hash of the key that the call counts for, "" for none.
    """
    digits = "".join(filter(str.isdigit, number.partition("@")[0]))[-TOLD_DIGITS:]
    parts = [f"key {owner[:NAMED]}" if owner else "no key", host(client)]
    return ", ".join([*parts, f"number ending in {digits}"] if digits else parts)


def refused(where: str, client: Address, reason: str) -> None:
    """Note that a call does not begin. where: what was called."""
    said = f"{one_line(reason)[:MAX_REASON]} ({host(client)})"
    log.warning("a call to %s was refused: %s", one_line(where[:64]), said)


class CallLog:
    """The lines of one call.

    id: what its client knows it by. wire: how it came. caller: who calls. now: seconds, of any clock.
    turns: how many replies have begun.
    """

    def __init__(self, id_: str, wire: str, caller: str, now: Callable[[], float]) -> None:
        self.turns = 0
        self._id = one_line(id_)
        self._about = f"{wire}, {caller}" if caller else wire
        self._now = now
        self._began = now()
        self._lost: float | None = None

    def begin(self) -> None:
        """Note that the call begins."""
        log.info("call %s began: %s", self._id, self._about)

    def lose(self, reason: str, seconds: float) -> None:
        """Note that the socket is lost, and that its client is waited for; once, however often it is told."""
        if self._lost is None:
            self._lost = self._now()
            log.info("call %s lost its socket: %s; it waits %g s for its client", self._id, reason, seconds)

    def come_back(self, client: Address) -> None:
        """Note that the call goes on over another socket."""
        after = "" if self._lost is None else f" after {self._now() - self._lost:.1f} s"
        self._lost = None
        log.info("call %s came back%s: %s", self._id, after, host(client))

    def end(self, reason: str, level: int = logging.INFO, error: Exception | None = None) -> None:
        """Note that the call is over, and why. error: what has to be mended here, with its traceback."""
        seconds, turns = self._now() - self._began, f"{self.turns} turn{'s' * (self.turns != 1)}"
        said = one_line(reason)[:MAX_REASON]
        about = (self._id, self._about, seconds, turns, said)
        log.log(level, "call %s ended: %s, %.1f s, %s: %s", *about, exc_info=error)
