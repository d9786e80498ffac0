"""API keys, of which the server stores only hashes, and client secrets, which expire after minutes."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rejoinder.pipeline import ProtocolError

PROTOCOL = "openai-insecure-api-key."
"""Prefix of a key among a WebSocket's sub-protocols. Browsers cannot send headers with a WebSocket."""
SECRET_PREFIX = "ek_"
"""Begins all client secrets."""
SECRET_CHARACTERS = 43
"""Characters of a client secret behind its prefix: 256 random bits."""
MAX_SECRETS = 10_000
"""Most secrets at a time. The oldest are dropped."""
MAX_SESSION = 2**15
"""Most bytes of JSON that a secret stores for its calls. Calls can send more with session.update."""
MAX_KEPT = 2**24
"""Most bytes of JSON of all secrets together: 512 of the largest. The oldest are dropped."""
EXPIRED_SECONDS = 3600.0
"""An expired secret is remembered this long, in seconds, if there is room, for a clear error message."""


def hashed(key: str) -> str:
    """Return the hash that is stored of a key.

    Keys are 256 random bits, so one round of SHA-256 is enough.
    """
    return hashlib.sha256(key.encode()).hexdigest()


def new_key() -> str:
    """Return a new API key: 256 random bits."""
    return f"rj_{secrets.token_urlsafe(32)}"


def presented(authorization: str | None, protocols: Sequence[str] = ()) -> str:
    """Return the key that a client presents, in a header or among its sub-protocols, "" for none."""
    scheme, _, key = (authorization or "").partition(" ")
    if scheme.lower() == "bearer" and key.strip():
        return key.strip()
    return next((one.removeprefix(PROTOCOL) for one in protocols if one.startswith(PROTOCOL)), "")


def may_be_secret(value: str) -> bool:
    """Return whether this has the form of a client secret."""
    return value.startswith(SECRET_PREFIX) and len(value) == len(SECRET_PREFIX) + SECRET_CHARACTERS


@dataclass(frozen=True, slots=True)
class Secret:
    """The data of a client secret.

    expires: by the clock of ``Keys``. session: the session object of its calls, as JSON.
    owner: the hash of the key that minted it, "" where no key was needed.
    """

    expires: float
    session: bytes
    owner: str = ""


def hashes_of(api_keys: str) -> list[str]:
    """Return the hashes in the setting ``api_keys``, without what each key may do."""
    return [one.partition(":")[0] for one in api_keys.split()]


class Keys:
    """The keys of one server. A server without API keys serves all clients.

    hashes: of the API keys. now: returns seconds of a clock that is never set.
    """

    def __init__(self, hashes: Sequence[str], now: Callable[[], float]) -> None:
        self._hashes = list(hashes)
        self._now = now
        self._secrets: dict[str, Secret] = {}

    def replace(self, hashes: Sequence[str]) -> None:
        """Take other API keys. Secrets that a removed key has minted end; calls that have begun go on."""
        self._hashes = list(hashes)
        known = set(hashes)
        self._secrets = {name: one for name, one in self._secrets.items() if one.owner in known}

    @property
    def kept(self) -> int:
        """The bytes of JSON that the secrets store."""
        return sum(len(one.session) for one in self._secrets.values())

    @property
    def needed(self) -> bool:
        """Whether a client needs a key."""
        return bool(self._hashes)

    def is_key(self, key: str) -> bool:
        """Return whether this is an API key; always true where none is needed."""
        found = [secrets.compare_digest(hashed(key), one) for one in self._hashes]
        return any(found) or not self._hashes

    def session(self, key: str) -> dict[str, Any] | None:
        """Return the initial session object for a key or secret, None where it is not valid."""
        secret = self._secrets.get(hashed(key))
        if secret is not None and secret.expires > self._now():
            return dict(json.loads(secret.session))
        return {} if self.is_key(key) else None

    def may_resume(self, key: str) -> bool:
        """Return whether a conversation of another process may be this client's.

        Its key is valid here, or it may be a client secret that has expired or that another process has made.
        """
        return may_be_secret(key) or self.session(key) is not None

    def serves(self, owner: str) -> bool:
        """Return whether calls of an API key may go on here. owner: the hash of the key, "" for none."""
        return owner in self._hashes or not self._hashes

    def wrong(self, key: str) -> str:
        """Return the error message for a key that is not valid. key: "" where the client presented none."""
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
        """Return a new secret and when it expires, in seconds of the clock.

        seconds: its lifetime. session: the initial session object of its calls. key: the API key that they
        count for. Raises ProtocolError where the session is larger than ``MAX_SESSION``.
        """
        data = json.dumps(session).encode()
        if len(data) > MAX_SESSION:
            reason = f"session: {len(data)} bytes, and {MAX_SESSION} are the most that a client secret keeps"
            raise ProtocolError(f"{reason}: send the rest with session.update", "invalid_value", "session")
        value = f"{SECRET_PREFIX}{secrets.token_urlsafe(32)}"
        return value, self.keep(value, seconds, data, self.owner(key)).expires

    def minted(self, value: str) -> Secret | None:
        """Return a client secret, None for one that is unknown here. It may have expired."""
        return self._secrets.get(hashed(value))

    def left(self, secret: Secret) -> float:
        """Return the seconds until a secret expires."""
        return secret.expires - self._now()

    def keep(self, value: str, seconds: float, session: bytes, owner: str) -> Secret:
        """Take a client secret: a new one, or one of another server. Return it as it is kept.

        seconds: until it expires. session, owner: as in ``Secret``. The oldest ones make room.
        """
        now = self._now()
        since = now - EXPIRED_SECONDS if len(self._secrets) < MAX_SECRETS else now
        self._secrets = {known: one for known, one in self._secrets.items() if one.expires > since}
        kept = self.kept + len(session)
        while len(self._secrets) >= MAX_SECRETS or kept > MAX_KEPT:
            oldest = self._secrets.pop(next(iter(self._secrets)))
            kept -= len(oldest.session)
        self._secrets[hashed(value)] = secret = Secret(now + seconds, session, owner)
        return secret
