"""Decides whether calls and requests begin, by the limits of their key and their address."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager

from rejoinder.agent.config import ConfigError, Settings
from rejoinder.agent.metrics.meters import Meters
from rejoinder.agent.server.denial import Denial
from rejoinder.agent.server.keys import Keys
from rejoinder.agent.server.limiting.allowance import Allowance
from rejoinder.agent.server.limiting.limits import Limits, limits_of
from rejoinder.agent.server.limiting.redis import RedisUse
from rejoinder.agent.server.limiting.secrets import SharedSecrets
from rejoinder.agent.server.limiting.shared import UNCHECKED, SharedUse
from rejoinder.models.redis_server import open_redis
from rejoinder.pipeline import CallOver
from rejoinder.pipeline.day_tally import DayTally
from rejoinder.pipeline.errors import ModelError


class Limiter:
    """The limits of one server, and with a store those of all servers that share it.

    limits: the use at this server. shared: the use at all servers, None for this one only. secrets: the
    client secrets of all servers, None for this one's. What this server alone refuses is not asked for
    elsewhere.
    """

    def __init__(
        self, limits: Limits, shared: SharedUse | None = None, secrets: SharedSecrets | None = None
    ) -> None:
        self._secrets = secrets
        self._limits = limits
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
            yield

    def replace(self, own: Mapping[str, Allowance]) -> None:
        """Take other allowances of single keys, by owner. Calls that have begun go on."""
        self._limits.replace(own)

    def owners(self, key: str, address: str = "") -> tuple[str, ...]:
        """Return who a call or request counts for; see ``Limits.owners``."""
        return self._limits.owners(key, address)

    def address(self, host: str) -> str:
        """Return the name under which a client's address is counted; see ``Limits.address``."""
        return self._limits.address(host)

    def refusal(self, owners: Sequence[str]) -> Denial | None:
        """Return why a call may not begin by what this server knows. It counts nothing."""
        return self._limits.refusal(owners, time.monotonic())

    async def begin(self, owners: Sequence[str], call: bool = True) -> Denial | None:
        """Count a call until ``end``, or a request; or return why it may not begin. Then it does not count.

        Waits only for the store of all servers, and half a second at most. Cancelling counts no call; it may
        count for the minute.
        """
        began, owners = time.monotonic(), self._limits.limited(owners, call)
        denial = self._limits.begin(owners, began, call)
        if denial or self._shared is None or not owners:
            return denial
        denial = UNCHECKED
        try:
            denial = await self._shared.begin(self._limits.claims(owners, call))
        finally:
            if denial:
                self._limits.take_back(owners, began, call)
        return denial

    def hold(self, owners: Sequence[str]) -> None:
        """Count a call that goes on without a socket, until ``end``. The limits do not apply to it."""
        self._limits.hold(owners)
        if self._shared and owners:
            self._shared.wake()

    def end(self, owners: Sequence[str]) -> None:
        """Stop counting a call."""
        self._limits.end(owners)
        if self._shared and owners:
            self._shared.wake()

    async def learn(self, key: str) -> bool:
        """Find out whether a key is a client secret of another server; see ``SharedSecrets.learn``.

        Cancelling stops the wait only.
        """
        return await self._secrets.learn(key) if self._secrets else True

    async def publish(self, secret: str) -> None:
        """Let all servers accept a client secret of this one. Cancelling stops the wait only."""
        if self._secrets:
            await self._secrets.publish(secret)

    def meter(self, owners: Sequence[str]) -> Callable[[float], None] | None:
        """Return what takes the seconds of audio of a call, None where they have no limit.

        It raises CallOver when no more are allowed.
        """
        if not any(self._limits.allowance(owner).audio_s for owner in owners):
            return None

        def hear(seconds: float) -> None:
            if reason := self._limits.hear(owners, seconds):
                raise CallOver(reason)

        return hear


def open_limiter(settings: Settings, keys: Keys, tally: DayTally, meters: Meters | None) -> Limiter:
    """Return the limiter that the settings name. Raises ConfigError if it cannot be opened.

    meters: count what is not checked, None for no metrics. A Redis server is connected later.
    """
    limits = limits_of(settings, tally)
    if not (url := settings.limits_store.get_secret_value()):
        return Limiter(limits)
    try:
        redis = open_redis(url, "limits_store")
    except ModelError as error:
        raise ConfigError(str(error)) from error
    closed = settings.limits_without_store == "closed"
    shared = SharedUse(limits, RedisUse(redis), closed, meters or Meters())
    return Limiter(limits, shared, SharedSecrets(redis, keys))
