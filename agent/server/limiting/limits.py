"""The use of keys and addresses at one server. It does no I/O; times are arguments."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network

from rejoinder.agent.config import Settings
from rejoinder.agent.server.denial import Denial
from rejoinder.agent.server.limiting.addresses import grouped
from rejoinder.agent.server.limiting.allowance import (
    ADDRESS_OWNER,
    KEY_OWNER,
    MINUTE,
    NO_LIMITS,
    Allowance,
    Use,
    refusal,
    too_much_audio,
)
from rejoinder.agent.settings.networks import networks
from rejoinder.pipeline.day_tally import DayTally

MAX_OWNERS = 10_000
"""Owners with calls of the last minute, beyond which those of earlier minutes are forgotten."""
FORGET_S = 10.0
"""Shortest interval between two times of that, in seconds."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One owner of a call or request that is to begin, as other servers need to know it.

    calls: that it holds at this server, with this one. audio: name of its audio in the tally.
    """

    owner: str
    allowance: Allowance
    calls: int
    call: bool
    audio: str


class Limits:
    """The use of each key and address. Times are in seconds, of any clock.

    keys, addresses: the allowance of owners without an entry in ``own``. exempt: addresses without limits.
    tally: counts audio. Owners without limits are not counted, so memory is bounded by those of the last
    minute and those that hold calls. reported: whether other servers learn of the calls.
    """

    def __init__(
        self,
        keys: Allowance = NO_LIMITS,
        addresses: Allowance = NO_LIMITS,
        own: Mapping[str, Allowance] | None = None,
        exempt: Sequence[IPv4Network | IPv6Network] = (),
        tally: DayTally | None = None,
    ) -> None:
        self.tally = tally or DayTally()
        self._keys = keys
        self._addresses = addresses
        self._own = dict(own or {})
        self._exempt = exempt
        self._held: Counter[str] = Counter()
        self._begun: dict[str, deque[float]] = {}
        self._forgot_at = 0.0
        self.reported = False
        self._changed: set[str] = set()

    def replace(self, own: Mapping[str, Allowance]) -> None:
        """Take other allowances of single owners. Calls that have begun go on."""
        self._own = dict(own)

    def owners(self, key: str, address: str = "") -> tuple[str, ...]:
        """Return the owners of a call or request that have limits.

        key: the hash of its API key, "" for none. address: of the client, "" where it is unknown.
        """
        group = self.address(address)
        named = [f"{KEY_OWNER}{key}" if key else "", f"{ADDRESS_OWNER}{group}" if group else ""]
        return tuple(owner for owner in named if owner and self.allowance(owner) != NO_LIMITS)

    def allowance(self, owner: str) -> Allowance:
        """Return the limits of an owner."""
        return self._own.get(owner, self._addresses if owner.startswith(ADDRESS_OWNER) else self._keys)

    def use(self, owner: str, now: float) -> Use:
        """Return what an owner uses here; its audio also elsewhere."""
        begun = self._begun.get(owner, deque[float]())
        while begun and now - begun[0] >= MINUTE:
            begun.popleft()
        wait = begun[0] + MINUTE - now if begun else 0.0
        return Use(self._held[owner], len(begun), wait, self.tally.total(_audio(owner)))

    def limited(self, owners: Iterable[str], call: bool) -> list[str]:
        """Return the owners whose limits apply: all of a call, and those of requests in a minute."""
        return [owner for owner in owners if call or self.allowance(owner).per_minute]

    def refusal(self, owners: Iterable[str], now: float, call: bool = True) -> Denial | None:
        """Return why one more call or request may not begin. It counts nothing."""
        found = (refusal(one, self.allowance(one), self.use(one, now), call) for one in owners)
        return next((denial for denial in found if denial), None)

    def begin(self, owners: Sequence[str], now: float, call: bool = True) -> Denial | None:
        """Count a call until ``end``, or a request; or return why it may not begin, and count nothing."""
        if denial := self.refusal(owners, now, call):
            return denial
        for owner in owners:
            if self.allowance(owner).per_minute:
                self._forget_old(now)
                self._begun.setdefault(owner, deque()).append(now)
        if call:
            self.hold(owners)
        return None

    def take_back(self, owners: Iterable[str], began: float, call: bool = True) -> None:
        """Stop counting a call or request that was counted at ``began`` and does not begin."""
        for owner in owners:
            if began in (begun := self._begun.get(owner, deque[float]())):
                begun.remove(began)
        if call:
            self.end(owners)

    def hold(self, owners: Iterable[str]) -> None:
        """Count a call that goes on without a socket, until ``end``. The limits do not apply to it."""
        for owner in owners:
            self._held[owner] += 1
            self._has_changed(owner)

    def end(self, owners: Iterable[str]) -> None:
        """Stop counting a call."""
        for owner in owners:
            self._held[owner] -= 1
            if self._held[owner] <= 0:
                del self._held[owner]
            self._has_changed(owner)

    def hear(self, owners: Iterable[str], seconds: float) -> str:
        """Count audio of a caller; return why no more is taken, "" if it is."""
        reason = ""
        for owner in owners:
            if (most := self.allowance(owner).audio_s) == 0:
                continue
            self.tally.add(_audio(owner), seconds, owner.startswith(ADDRESS_OWNER))
            if self.tally.total(_audio(owner)) > most:
                reason = reason or too_much_audio(owner, most)
        return reason

    def address(self, host: str) -> str:
        """Return the name under which a client's address is counted, "" for one that is not."""
        return grouped(host, self._exempt) if host else ""

    def claims(self, owners: Iterable[str], call: bool) -> list[Claim]:
        """Return what other servers need to know of a call or request that is counted here."""
        return [
            Claim(owner, self.allowance(owner), self._held[owner], call, _audio(owner)) for owner in owners
        ]

    def calls(self, everything: bool) -> dict[str, int]:
        """Return the calls of the owners that have changed since the last time, or of all that have some."""
        changed, self._changed = self._changed, set()
        return {owner: self._held[owner] for owner in (changed.union(self._held) if everything else changed)}

    def _has_changed(self, owner: str) -> None:
        if self.reported:
            self._changed.add(owner)

    def _forget_old(self, now: float) -> None:
        if len(self._begun) >= MAX_OWNERS and now - self._forgot_at >= FORGET_S:
            self._forgot_at = now
            recent = {one: times for one, times in self._begun.items() if times and now - times[-1] < MINUTE}
            self._begun = recent


def limits_of(settings: Settings, tally: DayTally) -> Limits:
    """Return the limits that the settings name, without those of single keys. tally: of the server."""
    keys = Allowance(settings.key_sessions, settings.key_calls_per_min, settings.key_audio_s_per_day)
    addresses = Allowance(
        settings.address_sessions, settings.address_calls_per_min, settings.address_audio_s_per_day
    )
    exempt = networks(settings.address_exempt)
    return Limits(keys, addresses, exempt=exempt, tally=tally)


def _audio(owner: str) -> str:
    return f"audio:{owner}"
