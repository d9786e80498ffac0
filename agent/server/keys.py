"""Who may call: API keys, of which only hashes are known, and secrets that live for minutes."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rejoinder.pipeline import ProtocolError

PROTOCOL = "openai-insecure-api-key."
"""What a browser puts before its key among the sub-protocols: it cannot send headers with a WebSocket."""
MAX_SECRETS = 10_000
"""Secrets that are known at a time; the oldest are forgotten."""
MAX_SESSION = 2**15
"""Bytes of JSON that one secret may keep for its calls: they can say more with session.update."""
MAX_KEPT = 2**24
"""Bytes that all secrets together keep, 512 of the largest; the oldest are forgotten."""
EXPIRED_SECONDS = 3600.0
"""So long it is known of a secret that it has expired, where there is room for that."""


def hashed(key: str) -> str:
    """Return what is kept of a key. Keys are 256 random bits, so that one round of SHA-256 is enough."""
    return hashlib.sha256(key.encode()).hexdigest()


def new_key() -> str:
    """Return a key that nobody can guess."""
    return f"rj_{secrets.token_urlsafe(32)}"


def presented(authorization: str | None, protocols: Sequence[str] = ()) -> str:
    """Return the key that a client shows, in a header or among its sub-protocols; "" for none."""
    scheme, _, key = (authorization or "").partition(" ")
    if scheme.lower() == "bearer" and key.strip():
        return key.strip()
    return next((one.removeprefix(PROTOCOL) for one in protocols if one.startswith(PROTOCOL)), "")


@dataclass(frozen=True, slots=True)
class Secret:
    """What a secret is good for.

    expires: in seconds of ``now``. session: what its calls begin with, as JSON, whose size is what it takes.
    owner: the hash of the key that minted it, "" where no key was needed.
    """

    expires: float
    session: bytes
    owner: str = ""


class Keys:
    """The keys of one server. Without any everybody may call.

    hashes: of the API keys. now: seconds since the epoch.
    """

    def __init__(self, hashes: Sequence[str], now: Callable[[], float]) -> None:
        self._hashes = list(hashes)
        self._now = now
        self._secrets: dict[str, Secret] = {}

    @property
    def kept(self) -> int:
        """The bytes that the secrets keep."""
        return sum(len(one.session) for one in self._secrets.values())

    @property
    def needed(self) -> bool:
        """Whether one is needed to call."""
        return bool(self._hashes)

    def is_key(self, key: str) -> bool:
        """Tell whether this is an API key, where one is needed."""
        found = [secrets.compare_digest(hashed(key), one) for one in self._hashes]
        return any(found) or not self._hashes

    def session(self, key: str) -> dict[str, Any] | None:
        """Return what the session begins with of whoever shows this key or secret; None: it may not call."""
        secret = self._secrets.get(hashed(key))
        if secret is not None and secret.expires > self._now():
            return dict(json.loads(secret.session))
        return {} if self.is_key(key) else None

    def wrong(self, key: str) -> str:
        """Return what is wrong with a key that was shown, "" for none, and that is not good enough."""
        if not key:
            return "this server wants one of its API keys, as a bearer token, and none was shown"
        if (secret := self._secrets.get(hashed(key))) is not None and secret.expires <= self._now():
            return "this client secret has expired: a new one is made with one of the server's API keys"
        return "the key that was shown is none of this server's API keys"

    def owner(self, key: str) -> str:
        """Return the hash of the API key that a key or secret counts for, "" for none."""
        shown = hashed(key)
        secret = self._secrets.get(shown)
        if secret is not None and secret.expires > self._now():
            return secret.owner
        return shown if self._hashes and self.is_key(key) else ""

    def mint(self, seconds: float, session: dict[str, Any], key: str = "") -> tuple[str, float]:
        """Return a secret for calls that begin with this session and count for a key, and when it expires.

        Raises ProtocolError where the session is larger than ``MAX_SESSION``.
        """
        data = json.dumps(session).encode()
        if len(data) > MAX_SESSION:
            reason = f"session: {len(data)} bytes, and {MAX_SESSION} are the most that a client secret keeps"
            raise ProtocolError(f"{reason}: send the rest with session.update", "invalid_value", "session")
        value = f"ek_{secrets.token_urlsafe(32)}"
        now = self._now()
        since = now - EXPIRED_SECONDS if len(self._secrets) < MAX_SECRETS else now
        self._secrets = {known: one for known, one in self._secrets.items() if one.expires > since}
        kept = self.kept + len(data)
        while len(self._secrets) >= MAX_SECRETS or kept > MAX_KEPT:
            oldest = self._secrets.pop(next(iter(self._secrets)))
            kept -= len(oldest.session)
        self._secrets[hashed(value)] = Secret(now + seconds, data, self.owner(key))
        return value, now + seconds
