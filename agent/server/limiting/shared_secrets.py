"""Client secrets that one server mints and all servers accept, by a Redis server."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

from rejoinder.agent.config import ConfigError, Settings
from rejoinder.agent.server.keys import Keys, hashed, may_be_secret
from rejoinder.agent.server.limiting.shared_limits import LIMITS_WAIT_S
from rejoinder.agent.wires.realtime.mcp import SECRET_FIELDS
from rejoinder.models.redis_server import open_redis
from rejoinder.pipeline.errors import ModelError

log = logging.getLogger(__name__)

SECRETS_KEY = "rejoinder:secret"
"""Begins the key of each secret; then comes its hash. Redis cannot be asked for the secret itself."""
PAUSE_S = 1.0
"""How long no secret is looked up or published after Redis has not answered, in seconds."""
SECRET_LOOKUPS = 8
"""Most lookups at a time. Nothing is known yet of the clients that ask for them."""
SECRET_LOOKUP_S = LIMITS_WAIT_S / 2
"""Longest wait for a lookup to begin, and then for its answer, in seconds."""


class SharedSecrets:
    """The client secrets of all servers. url: as for ``open_redis``. Raises what that raises.

    keys: of this server. While Redis is away, a secret is valid at the server that has minted it. So is one
    whose session has the credentials of an MCP server: Redis never holds those.
    """

    def __init__(self, url: str, keys: Keys) -> None:
        self._redis = open_redis(url, "limits_store")
        self._keys = keys
        self._lookups = asyncio.Semaphore(SECRET_LOOKUPS)
        self._away = False
        self._away_until = 0.0

    async def publish(self, value: str) -> None:
        """Let all servers accept a secret that this one has minted. Cancelling stops the wait only."""
        if (minted := self._keys.minted(value)) is None:
            return
        secret, left = minted
        if _has_credentials(json.loads(secret.session)):
            log.info("a client secret with credentials of an MCP server is valid at this server only")
            return
        if self._paused():
            return
        body = json.dumps({"session": secret.session.decode(), "owner": secret.owner})
        try:
            async with asyncio.timeout(LIMITS_WAIT_S):
                await self._redis.set(_key(value), body, px=max(1, int(left * 1000.0)))
        except Exception as error:
            self._lost(error)
        else:
            self._away = False

    async def learn(self, value: str) -> None:
        """Look a secret up that this server does not know. It takes at most ``LIMITS_WAIT_S``.

        value: what a client shows. Where too many are looked up, it is not. Cancelling stops the wait only.
        """
        if not may_be_secret(value) or self._keys.minted(value) or self._paused():
            return
        try:
            async with asyncio.timeout(SECRET_LOOKUP_S):
                await self._lookups.acquire()
        except TimeoutError:
            return
        try:
            if not self._paused():  # nor has one of those before found Redis gone
                await self._look_up(value)
        except Exception as error:
            self._lost(error)
        else:
            self._away = self._away and self._paused()
        finally:
            self._lookups.release()

    async def _look_up(self, value: str) -> None:
        async with asyncio.timeout(SECRET_LOOKUP_S), self._redis.pipeline(transaction=True) as request:
            request.get(_key(value))
            request.pttl(_key(value))
            body, left = await request.execute()
        if body is not None and left > 0:
            found = json.loads(body)
            self._keys.learn(value, left / 1000.0, found["session"].encode(), found["owner"])

    def _paused(self) -> bool:
        return asyncio.get_running_loop().time() < self._away_until

    def _lost(self, error: Exception) -> None:
        """Ask Redis for nothing for a while, and say so once until it answers again."""
        self._away_until = asyncio.get_running_loop().time() + PAUSE_S
        if not self._away:
            self._away = True
            reason = str(error) or type(error).__name__
            log.warning(
                "limits_store has not answered, so client secrets hold at one server only: %s", reason
            )

    async def aclose(self) -> None:
        """Close the connections. Cancelling leaves some to the garbage collector."""
        await self._redis.aclose()


def open_shared_secrets(settings: Settings, keys: Keys) -> SharedSecrets | None:
    """Return the secrets of all servers, None without a store. Raises ConfigError for a wrong setting."""
    if not (url := settings.limits_store.get_secret_value()):
        return None
    try:
        return SharedSecrets(url, keys)
    except ModelError as error:
        raise ConfigError(str(error)) from error


def _key(value: str) -> str:
    return f"{SECRETS_KEY}:{hashed(value)}"


def _has_credentials(session: dict[str, Any]) -> bool:
    tools = session.get("tools") or ()
    return any(tool.get(name) for tool in tools if tool.get("type") == "mcp" for name in SECRET_FIELDS)
