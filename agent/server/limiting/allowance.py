"""What a key or an address may use, what it uses, and the decision whether it may use more."""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime, timedelta
from http import HTTPStatus

from rejoinder.agent.server.denial import Denial

MINUTE = 60.0
"""The period of the rate limits, in seconds."""
BUSY_SECONDS = 10
"""Value of ``Retry-After`` where another call has to end first, in seconds."""
KEY_OWNER = "key:"
"""Begins the name of an owner that is an API key. Its hash follows."""
ADDRESS_OWNER = "address:"
"""Begins the name of an owner that is an address, or a network whose addresses count together."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """The limits of one owner; 0 stands for no limit.

    sessions: concurrent calls. per_minute: calls and requests begun in any 60 s. audio_s: seconds of audio
    that the callers send on one day.
    """

    sessions: int = 0
    per_minute: int = 0
    audio_s: int = 0


NO_LIMITS = Allowance()
"""Allows everything."""


@dataclass(frozen=True, slots=True)
class Use:
    """What one owner uses.

    sessions: calls. recent: calls and requests that began in the last 60 s. wait_s: seconds until the oldest
    of these counts no more. audio_s: seconds of audio of today.
    """

    sessions: int = 0
    recent: int = 0
    wait_s: float = 0.0
    audio_s: float = 0.0


def own_allowances(api_keys: str, audio_s: int = 0) -> dict[str, Allowance]:
    """Return the allowances that the setting gives to single keys, by owner.

    api_keys: ``HASH:SESSIONS:PER_MINUTE`` or ``HASH:SESSIONS:PER_MINUTE:AUDIO_S``. audio_s: of the others.
    """
    parts = [one.split(":") for one in api_keys.split()]
    given = {hash_: list(map(int, rest)) for hash_, *rest in parts if rest}
    return {f"{KEY_OWNER}{hash_}": Allowance(*[*own, audio_s][:3]) for hash_, own in given.items()}


def refusal(owner: str, allowance: Allowance, use: Use, call: bool) -> Denial | None:
    """Return why one more call or request may not begin, None where it may.

    use: without it. call: whether it is a call.
    """
    whose = _whose(owner)
    if call and allowance.sessions and use.sessions >= allowance.sessions:
        return _too_many(f"{whose} may hold no more calls at once than {allowance.sessions}", BUSY_SECONDS)
    if call and allowance.audio_s and use.audio_s >= allowance.audio_s:
        return _too_many(too_much_audio(owner, allowance.audio_s), until_midnight())
    if allowance.per_minute and use.recent >= allowance.per_minute:
        reason = f"{whose} may begin no more calls and requests in a minute than {allowance.per_minute}"
        return _too_many(reason, use.wait_s)
    return None


def too_much_audio(owner: str, most: int) -> str:
    """Return the reason for a call that has sent all the audio that its owner may send."""
    return f"{_whose(owner)} may send no more audio on one day than {most} s"


def until_midnight() -> float:
    """Return the seconds until the next day begins."""
    now = datetime.now()
    tomorrow = datetime.combine(now.date() + timedelta(days=1), datetime.min.time())
    return tomorrow.timestamp() - now.timestamp()


def _whose(owner: str) -> str:
    return "this address" if owner.startswith(ADDRESS_OWNER) else "this key"


def _too_many(reason: str, seconds: float) -> Denial:
    return Denial(HTTPStatus.TOO_MANY_REQUESTS, reason, max(1, math.ceil(seconds)))
