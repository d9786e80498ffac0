"""The use of all servers in a Redis server. Redis's clock is the only one."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rejoinder.agent.server.limiting.allowance import Use
from rejoinder.agent.server.limiting.limits import Claim

if TYPE_CHECKING:
    from redis.asyncio import Redis

LIMITS_KEY = "rejoinder:limits"
"""Begins all keys of Redis."""
LEASE_S = 10.0
"""How long the calls of a server count after its last report, in seconds."""
DAY_KEPT_S = 2 * 86_400
"""How long the amounts of a day are kept, in seconds: days end at local midnight."""

BEGIN_SCRIPT = """
local clock = redis.call('TIME')
local now = clock[1] + clock[2] / 1000000
local claims, server, name, lease = cjson.decode(ARGV[1]), ARGV[2], ARGV[3], tonumber(ARGV[4])
local function elsewhere(hash)
    local sum, fields = 0, redis.call('HGETALL', hash)
    for at = 1, #fields, 2 do
        local count, round = string.match(fields[at + 1], '^(%d+) (%d+)$')
        local newest = tonumber(redis.call('GET', KEYS[1] .. fields[at]) or math.huge)
        if fields[at] == server then
        elseif tonumber(round) < newest then redis.call('HDEL', hash, fields[at])
        else sum = sum + count end
    end
    return sum
end
local function day(hash)
    local sum = 0
    for _, amount in ipairs(redis.call('HVALS', hash)) do sum = sum + amount end
    return sum
end
local free, uses = true, {}
for at, one in ipairs(claims) do
    local calls, begun, audio = KEYS[3 * at - 1], KEYS[3 * at], KEYS[3 * at + 1]
    redis.call('ZREMRANGEBYSCORE', begun, '-inf', now - 60)
    local oldest = redis.call('ZRANGE', begun, 0, 0, 'WITHSCORES')[2]
    local held, recent, heard = elsewhere(calls) + one.calls - 1, redis.call('ZCARD', begun), day(audio)
    if redis.call('ZSCORE', begun, name) then recent = recent - 1 end
    if one.call and one.sessions > 0 and held >= one.sessions then free = false end
    if one.call and one.audio_s > 0 and heard >= one.audio_s then free = false end
    if one.per_minute > 0 and recent >= one.per_minute then free = false end
    uses[at] = {held, recent, tostring(oldest and oldest + 60 - now or 0), tostring(heard)}
end
if not free then return uses end
for at, one in ipairs(claims) do
    local calls, begun = KEYS[3 * at - 1], KEYS[3 * at]
    if one.call then
        local known = string.match(redis.call('HGET', calls, server) or '', '^%d+') or 0
        redis.call('HSET', calls, server, math.max(known, one.calls) .. ' ' .. ARGV[5])
        redis.call('PEXPIRE', calls, lease)
    end
    if one.per_minute > 0 then
        redis.call('ZADD', begun, now, name)
        redis.call('EXPIRE', begun, 61)
    end
end
return {}
"""
"""Counts a call or request if it is within the limits of all its owners, in one step of the server.

Keys: the beginning of the keys that servers keep alive; then for each owner a hash of the calls by server,
an ordered set of what began in the last minute, and a hash of today's audio by server. Arguments: the claims
as JSON, the server, a name for the call, the lease in milliseconds, and the round. Returns the use of each
owner where the call was not counted, else nothing. The calls of a server count if they are of the round that
the server has finished last, or of a later one. It may run twice for a call, and writes what depends on the
time, so Redis has to copy effects and not scripts, as it does from version 5 on.
"""


class RedisUse:
    """The use of all servers that share a Redis server. lease: how long the calls of one that dies count.

    A server reports how many calls and how much audio, tokens and money it has counted itself. So a report
    that is sent twice or never leaves nothing wrong once the next one has come, and one that comes late
    nothing after the next round, which is a report of all calls. All methods raise redis.RedisError and
    OSError; cancelling stops the wait only.
    """

    def __init__(self, redis: Redis, lease: float = LEASE_S) -> None:
        self._redis = redis
        self._begin = redis.register_script(BEGIN_SCRIPT)
        self._server = secrets.token_hex(8)
        self._lease_ms = int(lease * 1000.0)
        self._names = self._round = 0

    async def begin(self, claims: Sequence[Claim], day: str) -> list[Use]:
        """Count a call or request; return no use where it counts, else the use of each owner.

        day: of the audio. Cancelling stops the wait only.
        """
        self._names += 1
        keys = [f"{LIMITS_KEY}:server:"]
        for one in claims:
            keys += [_calls(one.owner), f"{LIMITS_KEY}:begun:{one.owner}", _amount(day, one.audio)]
        about = [
            {
                "sessions": one.allowance.sessions,
                "per_minute": one.allowance.per_minute,
                "audio_s": one.allowance.audio_s,
                "calls": one.calls if one.call else one.calls + 1,
                "call": one.call,
            }
            for one in claims
        ]
        name = f"{self._server}-{self._names}"
        uses = await self._begin(keys, [json.dumps(about), self._server, name, self._lease_ms, self._round])
        return [Use(held, recent, float(wait), float(heard)) for held, recent, wait, heard in uses]

    async def leave(self) -> None:
        """Let the calls of this server count no more. Cancelling stops the wait only."""
        await self._redis.delete(self._alive)

    @property
    def _alive(self) -> str:
        return f"{LIMITS_KEY}:server:{self._server}"

    async def aclose(self) -> None:
        """Close the connections. Cancelling leaves some to the garbage collector."""
        await self._redis.aclose()

    async def report(
        self, calls: Mapping[str, int], day: str, amounts: Mapping[str, float], everything: bool
    ) -> tuple[bool, dict[str, float]]:
        """Report the calls by owner and the amounts by name.

        everything: whether these are all calls of this server. Return whether Redis knows of an earlier
        report, and what other servers have of these amounts. Cancelling stops the wait only.
        """
        self._round += everything
        async with self._redis.pipeline(transaction=False) as request:
            request.exists(self._alive)
            for owner, count in calls.items():
                if count:
                    request.hset(_calls(owner), self._server, f"{count} {self._round}")
                    request.pexpire(_calls(owner), self._lease_ms)
                else:
                    request.hdel(_calls(owner), self._server)
            for name, amount in amounts.items():
                request.hset(_amount(day, name), self._server, repr(amount))
                request.expire(_amount(day, name), DAY_KEPT_S)
                request.hgetall(_amount(day, name))
            request.set(self._alive, self._round, px=self._lease_ms)  # now what is older does not count
            known, *answers = await request.execute()
        found = [answer for answer in answers if isinstance(answer, dict)]
        own = self._server.encode()
        sums = [sum(float(amount) for server, amount in one.items() if server != own) for one in found]
        return bool(known), dict(zip(amounts, sums, strict=True))


def _calls(owner: str) -> str:
    return f"{LIMITS_KEY}:calls:{owner}"


def _amount(day: str, name: str) -> str:
    return f"{LIMITS_KEY}:{day}:{name}"
