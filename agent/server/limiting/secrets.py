"""Client secrets that one server mints and all servers accept, by a Redis server."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import TYPE_CHECKING

from rejoinder.agent.server.keys import MAX_SECRETS, Keys, hashed, may_be_secret
from rejoinder.agent.server.limiting.shared import LIMITS_WAIT_S

if TYPE_CHECKING:
    from redis.asyncio import Redis

log = logging.getLogger(__name__)

SECRETS_KEY = "rejoinder:secret"
"""Begins the key of each secret; then comes its hash. Redis does not know the secret itself. The key without
a hash has the keys of all by the time at which they expire."""
PAUSE_S = 1.0
"""How long no secret is looked up or published after Redis has not answered, in seconds."""
SECRET_LOOKUPS = 8
"""Most lookups at a time: nothing is known yet of the clients that ask for them. Others wait."""


class SharedSecrets:
    """The client secrets of all servers. keys: of this one.

    While Redis is away, a secret is valid at the server that has minted it.
    """

    def __init__(self, redis: Redis, keys: Keys) -> None:
        self._redis = redis
        self._keys = keys
        self._lookups = asyncio.Semaphore(SECRET_LOOKUPS)
        self._away_until = 0.0

    async def publish(self, value: str) -> None:
        """Let all servers accept a secret that this one has minted.

        Waits at most ``LIMITS_WAIT_S``. Cancelling stops the wait only.
        """
        secret = self._keys.minted(value)
        if secret is None or self._paused():
            return
        body = json.dumps({"session": secret.session.decode(), "owner": secret.owner})
        left, now = self._keys.left(secret), time.time()
        try:
            async with asyncio.timeout(LIMITS_WAIT_S):
                async with self._redis.pipeline(transaction=True) as request:
                    request.set(_key(value), body, px=max(1, int(left * 1000.0)))
                    request.zadd(SECRETS_KEY, {_key(value): now + left})
                    request.zremrangebyscore(SECRETS_KEY, "-inf", now)
                    request.zrange(SECRETS_KEY, 0, -1 - MAX_SECRETS)
                    *_, oldest = await request.execute()
                if oldest:
                    await self._redis.delete(*oldest)
                    await self._redis.zrem(SECRETS_KEY, *oldest)
        except Exception as error:
            self._lost(error)

    async def learn(self, value: str) -> bool:
        """Look up a secret that this server does not know.

        value: what a client presents. Returns False where nothing could be found out. Waits at most
        ``LIMITS_WAIT_S``. Cancelling stops the wait only.
        """
        if not may_be_secret(value) or self._keys.minted(value):
            return True
        if self._paused():
            return False
        try:
            async with asyncio.timeout(LIMITS_WAIT_S), self._lookups:
                if self._paused():
                    return False
                await self._look_up(value)
        except Exception as error:
            self._lost(error)
            return False
        return True

    async def _look_up(self, value: str) -> None:
        async with self._redis.pipeline(transaction=True) as request:
            request.get(_key(value))
            request.pttl(_key(value))
            body, left = await request.execute()
        found = json.loads(body) if body is not None and left > 0 else None
        if found and self._keys.serves(found["owner"]):  # its key may be none of this server's any more
            self._keys.keep(value, left / 1000.0, found["session"].encode(), found["owner"])

    def _paused(self) -> bool:
        return asyncio.get_running_loop().time() < self._away_until

    def _lost(self, error: Exception) -> None:
        self._away_until = asyncio.get_running_loop().time() + PAUSE_S
        reason = str(error) or type(error).__name__
        log.warning("limits_store has not answered, so client secrets hold at one server only: %s", reason)


def _key(value: str) -> str:
    return f"{SECRETS_KEY}:{hashed(value)}"
