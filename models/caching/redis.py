"""Keeps entries in a Redis server, which several machines may share."""

from __future__ import annotations

from rejoinder.models.caching.store import CacheLimits, Stats
from rejoinder.models.redis_server import Argument, open_redis
from rejoinder.models.steady_clock import steady_time

REDIS_KEY = "rejoinder:answers"
"""Begins all keys. The braces of a cluster's hash tag are missing: one server holds all entries."""

PUT_SCRIPT = """
redis.call('SET', KEYS[1] .. ':' .. ARGV[1], ARGV[2], 'PX', ARGV[3])
redis.call('ZADD', KEYS[1], ARGV[4], ARGV[1])
redis.call('HSET', KEYS[2], ARGV[1], #ARGV[2])
local function drop(key)
    redis.call('ZREM', KEYS[1], key)
    redis.call('HDEL', KEYS[2], key)
    redis.call('DEL', KEYS[1] .. ':' .. key)
end
for _, key in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[5])) do drop(key) end
local bytes = 0
for _, size in ipairs(redis.call('HVALS', KEYS[2])) do bytes = bytes + size end
local entries = redis.call('ZCARD', KEYS[1])
while entries > tonumber(ARGV[6]) or bytes > tonumber(ARGV[7]) do
    local oldest = redis.call('ZRANGE', KEYS[1], 0, 0)[1]
    bytes = bytes - redis.call('HGET', KEYS[2], oldest)
    entries = entries - 1
    drop(oldest)
end
"""
"""Stores an entry and deletes what is over the limits, in one step of the server.

Arguments: key, body, time to live in ms, expiry, now, most entries, most bytes. An ordered set holds the
expiry of each key, and a hash the sizes.
"""
PURGE_SCRIPT = """
local keys = redis.call('ZRANGE', KEYS[1], 0, -1)
for _, key in ipairs(keys) do redis.call('DEL', KEYS[1] .. ':' .. key) end
redis.call('DEL', KEYS[1], KEYS[2])
return #keys
"""
"""Deletes all entries, and returns how many there were."""
STATS_SCRIPT = """
local entries, bytes = 0, 0
for _, key in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. ARGV[1], '+inf')) do
    entries, bytes = entries + 1, bytes + redis.call('HGET', KEYS[2], key)
end
return {entries, bytes}
"""
"""Counts the entries that expire after the time in the argument, and their bytes."""


class RedisStore:
    """Entries in a Redis server. url: as for ``open_redis``. Raises what that raises."""

    def __init__(self, url: str, limits: CacheLimits) -> None:
        self._limits = limits
        self._redis = open_redis(url, "cache")
        self._put = self._redis.register_script(PUT_SCRIPT)
        self._keys = [REDIS_KEY, f"{REDIS_KEY}:sizes"]

    async def get(self, key: str) -> bytes | None:
        """Return an entry, None for none. Raises redis.RedisError and OSError.

        Cancelling drops the answer only.
        """
        found = await self._redis.get(f"{REDIS_KEY}:{key}")
        return found if isinstance(found, bytes) else None  # text only with decode_responses, which is off

    async def put(self, key: str, body: bytes) -> None:
        """Store an entry, and delete what is over the limits. Raises redis.RedisError and OSError.

        Cancelling drops the answer only.
        """
        now, limits = steady_time(), self._limits
        ttl_ms = max(1, int(limits.ttl_s * 1000.0))
        arguments: list[Argument] = [
            key,
            body,
            ttl_ms,
            now + limits.ttl_s,
            now,
            limits.entries,
            limits.bytes,
        ]
        await self._put(self._keys, arguments)

    async def stats(self) -> Stats:
        """Count the entries that have not expired. Raises redis.RedisError and OSError.

        Cancelling drops the answer only.
        """
        entries, size = await self._redis.eval(STATS_SCRIPT, len(self._keys), *self._keys, steady_time())
        return Stats(entries, size)

    async def purge(self) -> int:
        """Delete all entries, and return how many there were. Raises redis.RedisError and OSError.

        Cancelling drops the answer only.
        """
        return int(await self._redis.eval(PURGE_SCRIPT, len(self._keys), *self._keys))

    async def aclose(self) -> None:
        """Close the connections. Cancelling leaves some to the garbage collector."""
        await self._redis.aclose()
