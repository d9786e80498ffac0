"""Admits calls and requests by the limits of their key and their address, at this and at all servers."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from rejoinder.agent.config import Settings
from rejoinder.agent.metrics.meters import Meters
from rejoinder.agent.server.keys import Keys
from rejoinder.agent.server.limiting.allowance import NO_LIMITS, Allowance, CallRefused, refused_use
from rejoinder.agent.server.limiting.limits import Limits
from rejoinder.agent.server.limiting.redis_counters import Beginning
from rejoinder.agent.server.limiting.shared_limits import SharedLimits, open_shared_limits
from rejoinder.agent.server.limiting.shared_secrets import SharedSecrets, open_shared_secrets


@dataclass(frozen=True, slots=True)
class Wish:
    """One owner of a call or request that is to begin.

    limits: of owners of its kind. call: whether it holds a call until its end. counted: whether it counts for
    the minute.
    """

    limits: Limits
    owner: str
    call: bool = True
    counted: bool = True


class CallAdmission:
    """Decides whether calls and requests begin, and counts them.

    keys, addresses: the use at this server. shared: the use at all servers. secrets: the client secrets of
    all servers. None for this server only. What this server alone refuses is not asked for elsewhere. Methods
    wait only for the store of all servers, at most ``LIMITS_WAIT_S``; a refused call or request does not
    count. Cancelling counts nothing.
    """

    def __init__(
        self,
        keys: Limits,
        addresses: Limits,
        shared: SharedLimits | None = None,
        secrets: SharedSecrets | None = None,
    ) -> None:
        self.keys = keys
        self.secrets = secrets
        self._addresses = addresses
        self._shared = shared

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Share the use with other servers for the length of the block.

        Cancelling may lose the last of it.
        """
        if self._shared is None:
            yield
            return
        async with self._shared.running():
            try:
                yield
            finally:
                if self.secrets:
                    await self.secrets.aclose()

    async def begin(self, owner: str, address: str) -> CallRefused | None:
        """Count a call until ``end``, or return why it may not begin. Cancelling counts nothing.

        owner: the hash of its key. address: as it is counted. "" for none of them.
        """
        return await self._admit(Wish(self._addresses, address), Wish(self.keys, owner))

    async def ask(self, owner: str, address: str) -> CallRefused | None:
        """Count a text request, or return why it may not be made. Cancelling counts nothing."""
        wishes = Wish(self._addresses, address, call=False), Wish(self.keys, owner, call=False)
        return await self._admit(*wishes)

    async def connect(self, address: str) -> CallRefused | None:
        """Count a connection as a call until ``end``; its requests count by themselves, for the minute.

        Returns why it may not begin. Cancelling counts nothing.
        """
        return await self._admit(Wish(self._addresses, address, counted=False))

    def count_detached(self, owner: str, address: str) -> None:
        """Count a call that goes on without a socket, until ``end``. The limits do not apply to it."""
        self.keys.count_call(owner)
        self._addresses.count_call(address)

    def end(self, owner: str, address: str) -> None:
        """Stop counting a call."""
        self.keys.end(owner)
        self._addresses.end(address)

    async def _admit(self, *wishes: Wish) -> CallRefused | None:
        if refused := _refused_here(wishes):
            return refused
        names: dict[Limits, str] = {}
        if self._shared and (owners := _beginnings(wishes)):
            names = {wish.limits: one.name for wish, one in owners}
            found = await self._shared.begin([one for _, one in owners])
            if isinstance(found, CallRefused):
                return found
            for (wish, one), use in zip(owners, found or (), strict=found is not None):
                if refused := refused_use(one.allowance, use, wish.limits.whose):
                    return refused
            if refused := _refused_here(wishes):  # others have begun meanwhile, and the store did not know
                self._shared.take_back([one for _, one in owners])
                return refused
        now = time.monotonic()
        for wish in wishes:
            if wish.counted:
                wish.limits.count_request(wish.owner, now)
            if wish.call:
                wish.limits.count_call(wish.owner, names.get(wish.limits, ""))
        return None


def open_admission(settings: Settings, meters: Meters, keys: Keys) -> CallAdmission:
    """Return the admission by the limits of the settings. Raises ConfigError for a wrong ``limits_store``."""
    of_key = Allowance(*settings.key_limits)
    of_address = Allowance(settings.address_sessions, settings.address_calls_per_min)
    shared = open_shared_limits(settings, meters)
    of_keys, of_addresses = (shared.keys, shared.addresses) if shared else (None, None)
    return CallAdmission(
        Limits(of_key, shared=of_keys),
        Limits(of_address, whose="this address", shared=of_addresses),
        shared,
        open_shared_secrets(settings, keys),
    )


def _refused_here(wishes: tuple[Wish, ...]) -> CallRefused | None:
    now = time.monotonic()
    refusals = (wish.limits.refusal(wish.owner, now, wish.call) for wish in wishes)
    return next((refused for refused in refusals if refused), None)


def _beginnings(wishes: tuple[Wish, ...]) -> list[tuple[Wish, Beginning]]:
    """Return what the store is asked for: the owners that have a limit."""
    found = []
    for wish in wishes:
        allowance = wish.limits.allowance(wish.owner, wish.call)
        if (shared := wish.limits.shared) and allowance != NO_LIMITS:
            name, released = shared.name(), shared.released(wish.owner)
            one = Beginning(shared.kind, wish.owner, name, allowance, wish.call, wish.counted, released)
            found.append((wish, one))
    return found
