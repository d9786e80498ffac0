"""The use of keys or addresses by one server, as reported to the store of all servers. It does no I/O."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from rejoinder.agent.server.limiting.allowance import MINUTE, Use

KNOWN_S = MINUTE
"""How long the use at all servers counts after it was read, in seconds. A call in progress reads it each
second, so an older one is that of a store that is away."""


@dataclass(frozen=True, slots=True)
class UseReport:
    """What is reported of one owner.

    held: names of its calls at this server. released: names of those that have ended. audio, tokens: used
    since the last report, in seconds of audio and in tokens.
    """

    owner: str
    held: tuple[str, ...] = ()
    released: tuple[str, ...] = ()
    audio: float = 0.0
    tokens: float = 0.0


@dataclass(slots=True)
class OwnerUse:
    """What one owner uses at this server. known, at: its use at all servers, and when it was read.

    held, released, audio, tokens: as in ``UseReport``. changed: whether its calls have changed since then.
    """

    held: list[str] = field(default_factory=list)
    released: list[str] = field(default_factory=list)
    audio: float = 0.0
    tokens: float = 0.0
    known: Use = field(default_factory=Use)
    at: float = -KNOWN_S
    changed: bool = False


class SharedUse:
    """The calls and the use of each owner, by what the store knows and what it is still to be told.

    Calls are leases: each has a name, which the store forgets some time after the server has last reported
    it. kind: of the owners, "key" or "address". wake: called when calls begin and end. Times are arguments,
    in seconds. Memory is bounded by the owners of the last minute, and those who use something.
    """

    def __init__(self, kind: str, wake: Callable[[], None] = lambda: None) -> None:
        self.kind = kind
        self._wake = wake
        self._server = secrets.token_hex(8)
        self._names = 0
        self._owners: dict[str, OwnerUse] = {}

    def name(self) -> str:
        """Return a name for a call or a request that no other one has, at any server."""
        self._names += 1
        return f"{self._server}-{self._names}"

    def hold(self, owner: str, name: str = "") -> None:
        """Take a call that has begun. name: under which the store knows it, "" where it does not."""
        one = self._owners.setdefault(owner, OwnerUse())
        one.held.append(name or self.name())
        if not name:
            self._changed(one)

    def release(self, owner: str, name: str = "") -> None:
        """Take the end of a call. name: of one that was not held, "" for any of the owner."""
        if not name and (owner not in self._owners or not self._owners[owner].held):
            return  # its limit was set after it had begun
        one = self._owners.setdefault(owner, OwnerUse())
        one.released.append(name or one.held.pop())
        self._changed(one)

    def released(self, owner: str) -> tuple[str, ...]:
        """Return the calls of an owner whose end the store may not know yet."""
        return tuple(self._owners[owner].released) if owner in self._owners else ()

    def spend(self, owner: str, audio: float = 0.0, tokens: float = 0.0) -> None:
        """Take audio, in seconds, and tokens that an owner has used."""
        one = self._owners.setdefault(owner, OwnerUse())
        one.audio += audio
        one.tokens += tokens

    def joined(self, owner: str, here: Use, now: float) -> Use:
        """Return the use of a day at all servers, where it is known. here: the use at this server."""
        if (one := self._owners.get(owner)) is None or now - one.at >= KNOWN_S:
            return here
        joined = here
        if (audio := one.known.audio + one.audio) > here.audio:
            joined = replace(joined, audio=audio, audio_again=one.known.audio_again)
        if (tokens := one.known.tokens + one.tokens) > here.tokens:
            joined = replace(joined, tokens=tokens, tokens_again=one.known.tokens_again)
        return joined

    def reports(self, everything: bool) -> list[UseReport]:
        """Return what the store is to be told. everything: also of calls that merely go on."""
        return [
            UseReport(owner, tuple(one.held), tuple(one.released), one.audio, one.tokens)
            for owner, one in self._owners.items()
            if one.changed or one.audio or one.tokens or (everything and one.held)
        ]

    def told(self, report: UseReport, use: Use | None, now: float) -> None:
        """Take the answer of the store to a report: the use at all servers with it.

        None where it cannot count for this owner. Then this server's own use decides, and it is not repeated.
        """
        one = self._owners[report.owner]
        one.released = [name for name in one.released if name not in report.released]
        one.audio = max(0.0, one.audio - report.audio)
        one.tokens = max(0.0, one.tokens - report.tokens)
        one.changed = bool(one.released) or one.held != list(report.held)
        if use:
            self.learn(report.owner, use, now)

    def learn(self, owner: str, use: Use, now: float) -> None:
        """Take the use of an owner at all servers."""
        one = self._owners.setdefault(owner, OwnerUse())
        one.known, one.at = use, now

    def forget(self, now: float) -> None:
        """Forget the owners without calls whose use was read too long ago to count."""
        for owner, one in list(self._owners.items()):
            used = one.held or one.released or one.audio or one.tokens
            if not used and now - one.at >= KNOWN_S:
                del self._owners[owner]

    def lost(self) -> None:
        """Forget the calls that have ended: a store that is away forgets them by itself."""
        for one in self._owners.values():
            one.released.clear()

    def _changed(self, one: OwnerUse) -> None:
        one.changed = True
        self._wake()
