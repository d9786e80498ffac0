"""Keeps conversations in a Redis server, which several machines may share."""

from __future__ import annotations

import time
from collections.abc import Sequence

from rejoinder.agent.server.journal.store import JournalLimits, Save, Saved, WriteRefusal
from rejoinder.models.redis_server import open_redis

CONVERSATIONS_KEY = "rejoinder:conversations"
"""Begins all keys: an ordered set of the conversations by the time at which each was last seen."""
GENERATION = "generation"
"""The field of a conversation's hash that names its owner; the other fields are its parts."""

SAVE_SCRIPT = """
local hash = KEYS[1] .. ':' .. ARGV[1]
local owner = redis.call('HGET', hash, 'generation')
if not owner and ARGV[3] == '0' then return 'DROPPED' end
if owner and owner ~= ARGV[2] then return 'TAKEN' end
redis.call('HSET', hash, 'generation', ARGV[2])
for at = 8, #ARGV, 2 do redis.call('HSET', hash, ARGV[at], ARGV[at + 1]) end
redis.call('PEXPIRE', hash, ARGV[5])
redis.call('ZADD', KEYS[1], ARGV[4], ARGV[1])
local size = 0
for _, name in ipairs(redis.call('HKEYS', hash)) do size = size + redis.call('HSTRLEN', hash, name) end
redis.call('HSET', KEYS[2], ARGV[1], size)
if ARGV[3] == '0' and #ARGV > 7 then return '' end
local function delete(key)
    redis.call('ZREM', KEYS[1], key)
    redis.call('HDEL', KEYS[2], key)
    redis.call('DEL', KEYS[1] .. ':' .. key)
end
local oldest = ARGV[4] - ARGV[5] / 1000
for _, key in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '(' .. oldest)) do delete(key) end
local count = redis.call('ZCARD', KEYS[1])
if redis.call('HLEN', KEYS[2]) > count then
    redis.call('DEL', KEYS[2])
    redis.call('HSET', KEYS[2], ARGV[1], size)
end
local bytes = 0
for _, one in ipairs(redis.call('HVALS', KEYS[2])) do bytes = bytes + one end
while count > tonumber(ARGV[6]) or (count > 0 and bytes > tonumber(ARGV[7])) do
    local first = redis.call('ZRANGE', KEYS[1], 0, 0)[1]
    bytes = bytes - (redis.call('HGET', KEYS[2], first) or 0)
    count = count - 1
    delete(first)
end
return ''
"""
"""Writes parts of a conversation if the generation is that of its owner, in one step of the server.

Arguments: key, generation, whether it may be new, now, ms to keep it, most conversations, most bytes, and
the name and the body of each part. With a new one, and where there are no parts, it deletes what is over the
limits. A server whose memory is full may have evicted the ordered set or the sizes (``maxmemory-policy``):
sizes of conversations that are in no set are forgotten, and one without a size counts as empty until it is
written again.
"""
CLAIM_SCRIPT = """
local hash = KEYS[1] .. ':' .. ARGV[1]
if redis.call('HGET', hash, 'generation') ~= ARGV[2] then return 0 end
redis.call('PEXPIRE', hash, ARGV[4])
redis.call('ZADD', KEYS[1], ARGV[3], ARGV[1])
return redis.call('HINCRBY', hash, 'generation', 1)
"""
"""Raises the generation of a conversation if it is the one expected; returns the new one, or 0."""
DROP_SCRIPT = """
if redis.call('HGET', KEYS[1] .. ':' .. ARGV[1], 'generation') ~= ARGV[2] then return end
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('DEL', KEYS[1] .. ':' .. ARGV[1])
"""
"""Deletes a conversation if the generation is that of its owner."""


class RedisConversations:
    """Conversations in a Redis server. url: as for ``open_redis``. Raises what that raises.

    Whether a write outlives the Redis server is decided by that server's setting ``appendonly``. All methods
    raise redis.RedisError and OSError; cancelling stops the wait only.
    """

    def __init__(self, url: str, limits: JournalLimits) -> None:
        self._limits = limits
        self._redis = open_redis(url, "conversations")
        self._save = self._redis.register_script(SAVE_SCRIPT)
        self._claim = self._redis.register_script(CLAIM_SCRIPT)
        self._drop = self._redis.register_script(DROP_SCRIPT)
        self._keys = [CONVERSATIONS_KEY, f"{CONVERSATIONS_KEY}:sizes"]

    async def save(self, saves: Sequence[Save]) -> dict[str, WriteRefusal]:
        """Write all in one request; see ``ConversationStore``. Cancelling stops the wait only."""
        limits, now = self._limits, time.time()
        async with self._redis.pipeline(transaction=False) as request:
            for one in saves:
                arguments: list[str | bytes | int | float] = [one.key, one.generation, int(one.new), now]
                arguments += [self._keep_ms, limits.conversations, limits.bytes]
                for name, body in one.parts.items():
                    arguments += [name, body]
                await self._save(self._keys, arguments, request)
            answers = await request.execute()
        refusals = [answer.decode() for answer in answers]
        return {one.key: WriteRefusal[said] for one, said in zip(saves, refusals, strict=True) if said}

    async def find(self, key: str) -> Saved | None:
        """Return a conversation; see ``ConversationStore``. Cancelling stops the wait only."""
        fields = await self._redis.hgetall(f"{CONVERSATIONS_KEY}:{key}")
        parts = {  # text only with decode_responses, which is off
            name.decode(): body
            for name, body in fields.items()
            if isinstance(name, bytes) and isinstance(body, bytes)
        }
        return Saved(int(parts.pop(GENERATION)), parts) if parts else None

    async def claim(self, key: str, generation: int) -> int | None:
        """Become the owner of a conversation; see ``ConversationStore``. Cancelling stops the wait only."""
        arguments: list[str | bytes | int | float] = [key, generation, time.time(), self._keep_ms]
        return int(await self._claim(self._keys, arguments)) or None

    async def drop(self, key: str, generation: int) -> None:
        """Delete a conversation that has ended. Cancelling stops the wait only."""
        await self._drop(self._keys, [key, generation])

    async def aclose(self) -> None:
        """Close the connections. Cancelling leaves some to the garbage collector."""
        await self._redis.aclose()

    @property
    def _keep_ms(self) -> int:
        return max(1, int(self._limits.keep_s * 1000.0))
