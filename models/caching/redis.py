"""Keeps entries in a Redis server, which several machines may share."""

from __future__ import annotations

from rejoinder.models.caching.store import CacheLimits, Stats
from rejoinder.models.redis_server import open_redis

REDIS_KEY = "rejoinder:answers"
"""Begins all keys. The braces of a cluster's hash tag are missing: one server holds all entries."""
_NOW = """
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
"""
PUT_SCRIPT = f"""{_NOW}
redis.call('SET', KEYS[1] .. ':' .. ARGV[1], ARGV[2], 'PX', ARGV[3])
redis.call('ZADD', KEYS[1], now + ARGV[3], ARGV[1])
local entries = redis.call('ZCARD', KEYS[1])
if entries == 1 then redis.call('DEL', KEYS[2], KEYS[3]) end
local before = redis.call('HGET', KEYS[2], ARGV[1]) or 0
redis.call('HSET', KEYS[2], ARGV[1], #ARGV[2])
local bytes = redis.call('INCRBY', KEYS[3], #ARGV[2] - before)
local function drop(key)
    local size = redis.call('HGET', KEYS[2], key) or 0
    redis.call('ZREM', KEYS[1], key)
    redis.call('HDEL', KEYS[2], key)
    redis.call('DEL', KEYS[1] .. ':' .. key)
    bytes = redis.call('DECRBY', KEYS[3], size)
    entries = entries - 1
end
for _, key in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now)) do drop(key) end
while entries > 0 and (entries > tonumber(ARGV[4]) or bytes > tonumber(ARGV[5])) do
    drop(redis.call('ZRANGE', KEYS[1], 0, 0)[1])
end
"""
"""Stores an entry and deletes what is over the limits, in one step of the server, by its clock.

Arguments: key, body, time to live in ms, most entries, most bytes. An ordered set holds the expiry of each
key, a hash the sizes, and a number their sum.
"""
PURGE_SCRIPT = """
local keys = redis.call('ZRANGE', KEYS[1], 0, -1)
for _, key in ipairs(keys) do redis.call('DEL', KEYS[1] .. ':' .. key) end
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
return #keys
"""
"""Deletes all entries, and returns how many there were."""
STATS_SCRIPT = f"""{_NOW}
local entries, bytes = 0, 0
for _, key in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '(' .. now, '+inf')) do
    entries, bytes = entries + 1, bytes + (redis.call('HGET', KEYS[2], key) or 0)
end
return {{entries, bytes}}
"""
"""Counts the entries that have not expired, and their bytes."""


class RedisStore:
    """Entries in a Redis server. url: as for ``open_redis``. Raises what that raises."""

    def __init__(self, url: str, limits: CacheLimits) -> None:
        self._limits = limits
        self._redis = open_redis(url, "cache")
        self._put = self._redis.register_script(PUT_SCRIPT)
        self._keys = [REDIS_KEY, f"{REDIS_KEY}:sizes", f"{REDIS_KEY}:bytes"]

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
        limits = self._limits
        ttl_ms = max(1, int(limits.ttl_s * 1000.0))
        await self._put(self._keys, [key, body, ttl_ms, limits.entries, limits.bytes])

    async def stats(self) -> Stats:
        """Count the entries that have not expired. Raises redis.RedisError and OSError.

        Cancelling drops the answer only.
        """
        entries, size = await self._redis.eval(STATS_SCRIPT, len(self._keys), *self._keys)
        return Stats(entries, size)

    async def purge(self) -> int:
        """Delete all entries, and return how many there were. Raises redis.RedisError and OSError.

        Cancelling drops the answer only.
        """
        return int(await self._redis.eval(PURGE_SCRIPT, len(self._keys), *self._keys))

    async def aclose(self) -> None:
        """Close the connections. Cancelling leaves some to the garbage collector."""
        await self._redis.aclose()
