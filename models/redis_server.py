"""Opens a Redis server, which several machines may share."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import parse_qs

from rejoinder.models.hints import require
from rejoinder.pipeline.errors import ModelError

if TYPE_CHECKING:
    from redis.asyncio import Redis

REDIS_URLS = ("redis://", "rediss://", "unix://")
"""Begin the URLs of a Redis server, as redis-py reads them."""
REDIS_ANSWER_S = 2.0
"""Longest wait for the server, in seconds. A caller with less time sets a deadline of its own."""
REDIS_CONNECTIONS = 50
"""Most connections of a client. Further requests wait for one, at most ``REDIS_ANSWER_S``."""
WRONG_URL = "write redis://:PASSWORD@HOST:PORT/0, with signs such as / and @ in the password as %2F and %40"
"""What to do about a URL that cannot be read."""


def open_redis(url: str, what: str) -> Redis:
    """Return a client of a Redis server. It connects with the first request.

    url: begins as in ``REDIS_URLS``. what: what is kept there, for messages. A request whose connection was
    lost is sent once more, on a new connection. Raises ModelError for another URL, and PackageMissing without
    redis-py.
    """
    if not url.startswith(REDIS_URLS):
        scheme = url.partition(":")[0]
        raise ModelError(what, f"{scheme!r} is no Redis server: give its URL, such as redis://HOST:6379/0")
    require("redis", ["redis"], "redis")
    from redis.asyncio import BlockingConnectionPool, Redis
    from redis.asyncio.retry import Retry
    from redis.backoff import NoBackoff
    from redis.exceptions import ConnectionError as Disconnected

    # By default redis-py tries 3 times within several seconds, also where the server hangs.
    again = Retry(NoBackoff(), 1, (Disconnected,))
    try:
        # The usual pool refuses at once what would need a further connection, as if the server were gone.
        pool = BlockingConnectionPool.from_url(
            url,
            max_connections=REDIS_CONNECTIONS,
            timeout=REDIS_ANSWER_S,
            socket_connect_timeout=REDIS_ANSWER_S,
            socket_timeout=REDIS_ANSWER_S,
            retry=again,
        )
        return Redis.from_pool(pool)
    except ValueError:
        # Its message may have a part of the password.
        raise ModelError(what, f"the URL of the Redis server is wrong: {WRONG_URL}") from None


def passwords_of(url: str) -> list[str]:
    """Return the passwords that a URL has, in front of its host or in its query, right or wrong."""
    head, _, query = url.partition("?")
    given = head.partition("//")[2].rpartition("@")[0].partition(":")[2]
    return [given, *parse_qs(query).get("password", [])]


def without_passwords(url: str) -> str:
    """Return a URL that may be shown: without user, password and query."""
    scheme, slashes, rest = url.partition("?")[0].partition("//")
    return f"{scheme}{slashes}{'***@' if '@' in rest else ''}{rest.rpartition('@')[2]}"
