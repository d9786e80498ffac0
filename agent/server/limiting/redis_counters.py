"""Counts what all servers use in a Redis server. Redis's clock is the only one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from rejoinder.agent.server.limiting.allowance import NO_LIMITS, Allowance, Use
from rejoinder.agent.server.limiting.shared_use import UseReport
from rejoinder.models.redis_server import open_redis

LIMITS_KEY = "rejoinder:limits"
"""Begins all keys: then come the kind of the owner, the owner, and what is counted."""
LEASE_S = 10.0
"""How long a call counts after its server has last reported it, in seconds."""
PROBE_S = 0.05
"""How long the key of a probe lasts, in seconds."""
MAX_REPORTS = 100
"""Most owners in one run of the script: Redis answers no other request meanwhile."""

USE_SCRIPT = """
local clock = redis.call('TIME')
local now = clock[1] + clock[2] / 1000000
local hour = math.floor(now / 3600)
local function exact(number) return string.format('%.17g', number) end
local function day(key)
    local sum, first = 0, nil
    local fields = redis.call('HGETALL', key)
    for at = 1, #fields, 2 do
        local counted = tonumber(fields[at])
        if counted <= hour - 24 then
            redis.call('HDEL', key, fields[at])
        else
            sum = sum + fields[at + 1]
            first = math.min(first or counted, counted)
        end
    end
    return sum, first and (first + 24) * 3600 - now or 3600
end
local function spend(key, amount)
    if amount <= 0 then return end
    redis.call('HINCRBYFLOAT', key, hour, exact(amount))
    redis.call('EXPIRE', key, 25 * 3600)
end
local function hold(key, name, lease)
    redis.call('ZADD', key, now + lease, name)
    redis.call('PEXPIRE', key, math.ceil(lease * 1000))
end
local function use(one, calls, begun, audio, tokens)
    redis.call('ZREM', begun, one.name)
    redis.call('ZREM', calls, one.name)
    for _, name in ipairs(one.released) do redis.call('ZREM', calls, name) end
    for _, name in ipairs(one.held) do hold(calls, name, one.lease) end
    spend(audio, one.audio)
    spend(tokens, one.tokens)
    redis.call('ZREMRANGEBYSCORE', calls, '-inf', now)
    redis.call('ZREMRANGEBYSCORE', begun, '-inf', now - 60)
    local oldest = redis.call('ZRANGE', begun, 0, 0, 'WITHSCORES')[2]
    local heard, heard_again = day(audio)
    local written, written_again = day(tokens)
    return {redis.call('ZCARD', calls), redis.call('ZCARD', begun), heard, written,
        oldest and oldest + 60 - now or 60, heard_again, written_again}
end
local owners, free, answers = cjson.decode(ARGV[1]), true, {}
for at, one in ipairs(owners) do
    local done, found = pcall(use, one, KEYS[4 * at - 3], KEYS[4 * at - 2], KEYS[4 * at - 1], KEYS[4 * at])
    if not done then
        local reason = type(found) == 'table' and found.err or tostring(found)
        if not (string.find(reason, 'WRONGTYPE') or string.find(reason, 'not a')) then error(found) end
        free, found = false, {}
    end
    for which, most in ipairs(one.most) do
        if done and most > 0 and found[which] >= most then free = false end
    end
    for which, number in ipairs(found) do found[which] = exact(number) end
    answers[at] = found
end
if not free then return answers end
for at, one in ipairs(owners) do
    if one.call and one.most[1] > 0 then hold(KEYS[4 * at - 3], one.name, one.lease) end
    if one.counted and one.most[2] > 0 then
        redis.call('ZADD', KEYS[4 * at - 2], now, one.name)
        redis.call('EXPIRE', KEYS[4 * at - 2], 61)
    end
end
return answers
"""
"""Takes what owners have used, and begins one more call or request if it is within the limits of all of them.

It runs as one step of the server. Argument: the owners as JSON, each with ``most``: the limits, in the order
of ``Allowance``. Four keys for each: an ordered set of calls by the time at which they no longer count, one
of calls and requests by the time at which they began, and two hashes of audio and tokens by the hour. It
returns the use of each owner without that call, in the order of ``Use``; so it may run twice. An owner whose
keys hold something else gets an empty list, and nothing begins; errors of the server itself are raised, for
all owners would have them. It writes what
depends on the time, so it needs Redis 5 or later, which copies effects and not scripts.
"""


@dataclass(frozen=True, slots=True)
class Beginning:
    """A call or a request that is to begin.

    kind, owner: as in ``SharedUse``. name: of its own. allowance: the limits that apply to it. call: whether
    it holds a call. counted: whether it counts for the minute. released: calls of the owner that have ended.
    """

    kind: str
    owner: str
    name: str
    allowance: Allowance
    call: bool
    counted: bool
    released: tuple[str, ...] = ()


class RedisCounters:
    """The counters of all servers in a Redis server. url: as for ``open_redis``. Raises what that raises.

    lease: how long a call counts after its last report, in seconds. All methods raise redis.RedisError and
    OSError. Cancelling stops the wait only.
    """

    def __init__(self, url: str, lease: float = LEASE_S) -> None:
        self._redis = open_redis(url, "limits_store")
        self._run = self._redis.register_script(USE_SCRIPT)
        self._lease = lease

    async def begin(self, owners: Sequence[Beginning]) -> list[Use] | None:
        """Count a call or request if it is within the limits of all its owners.

        Return the use of each without it, by which ``refused_use`` says whether it was counted; None
        where the counts of one cannot be used. Cancelling stops the wait only.
        """
        found = await self._use(
            [(one.kind, one.owner) for one in owners],
            [
                self._owner(
                    UseReport(one.owner, released=one.released),
                    one.allowance,
                    one.name,
                    one.call,
                    one.counted,
                )
                for one in owners
            ],
        )
        uses = [use for use in found if use]
        return uses if len(uses) == len(found) else None

    async def report(self, kind: str, reports: Sequence[UseReport]) -> list[Use | None]:
        """Take what owners of a kind have used and which calls they hold; return the use of each.

        At most ``MAX_REPORTS`` of them. None for an owner whose counts cannot be used. A report whose answer
        is lost may count twice if it is repeated. Cancelling stops the wait only.
        """
        return await self._use([(kind, one.owner) for one in reports], [self._owner(one) for one in reports])

    async def probe(self) -> None:
        """Return when the server counts. One that only reads answers, too. Cancelling stops the wait only."""
        await self._use([("probe", "")], [{**self._owner(UseReport("", held=("probe",))), "lease": PROBE_S}])

    async def aclose(self) -> None:
        """Close the connections. Cancelling leaves some to the garbage collector."""
        await self._redis.aclose()

    async def _use(
        self, owners: Sequence[tuple[str, str]], about: Sequence[dict[str, object]]
    ) -> list[Use | None]:
        keys = [
            f"{LIMITS_KEY}:{kind}:{owner}:{what}"
            for kind, owner in owners
            for what in ("calls", "begun", "audio", "tokens")
        ]
        found: list[Use | None] = []
        for answer in await self._run(keys, [json.dumps(about)]):
            if not answer:
                found.append(None)
                continue
            sessions, recent, *rest = map(float, answer)
            found.append(Use(int(sessions), int(recent), *rest))
        return found

    def _owner(
        self,
        report: UseReport,
        allowance: Allowance = NO_LIMITS,
        name: str = "",
        call: bool = False,
        counted: bool = False,
    ) -> dict[str, object]:
        return {
            "released": report.released,
            "held": report.held,
            "audio": report.audio,
            "tokens": report.tokens,
            "lease": self._lease,
            "most": [allowance.sessions, allowance.per_minute, allowance.audio, allowance.tokens],
            "name": name,
            "call": call,
            "counted": counted,
        }
