"""What a key or address may use, what it uses, and the decision whether it may use more."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from rejoinder.agent.server.operating.daily_use import HOUR_SECONDS

MINUTE = 60.0
"""The period of the rate limits, in seconds."""
BUSY_SECONDS = 10
"""Value of ``Retry-After`` where another call has to end first, in seconds."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """The limits of one key or address; 0 stands for no limit.

    sessions: concurrent calls. per_minute: calls and requests begun in any 60 s. audio: seconds of callers'
    audio in 24 hours, counted by the hour. tokens: of the language model, prompts and answers, in 24 hours.
    """

    sessions: int = 0
    per_minute: int = 0
    audio: int = 0
    tokens: int = 0

    def of_request(self) -> Allowance:
        """Return the limits that apply to a text request: it holds no call and sends no audio."""
        return replace(self, sessions=0, audio=0)


NO_LIMITS = Allowance()
"""Allows everything."""


@dataclass(frozen=True, slots=True)
class Use:
    """What a key or address uses now.

    sessions: calls. recent: calls and requests that began in the last 60 s. audio: seconds of the last 24
    hours. tokens: of the last 24 hours. recent_again, audio_again, tokens_again: seconds until the oldest
    part of these no longer counts.
    """

    sessions: int = 0
    recent: int = 0
    audio: float = 0.0
    tokens: float = 0.0
    recent_again: float = MINUTE
    audio_again: float = HOUR_SECONDS
    tokens_again: float = HOUR_SECONDS


@dataclass(frozen=True, slots=True)
class CallRefused:
    """Why a call may not begin, and when to try again, in seconds. status: of the HTTP response."""

    reason: str
    seconds: int
    status: int = 429


def own_allowances(api_keys: str) -> dict[str, Allowance]:
    """Return the allowances that the setting gives to single keys: ``HASH:SESSIONS:PER_MINUTE:AUDIO:TOKENS``.

    The last two may be left out, for no limit.
    """
    parts = [one.split(":") for one in api_keys.split()]
    return {hash_: Allowance(*map(int, rest)) for hash_, *rest in parts if rest}


def refused_use(allowance: Allowance, use: Use, whose: str, audio: float = 0.0) -> CallRefused | None:
    """Return why one more call or request may not begin, None where it may.

    whose: names the owner in the reason. audio: seconds of audio to be used.
    """
    if allowance.sessions and use.sessions >= allowance.sessions:
        reason = f"{whose} has reached its limit of calls at a time: {allowance.sessions}"
        return CallRefused(reason, BUSY_SECONDS)
    if (most := allowance.audio) and (use.audio >= most or use.audio + audio > most):
        return _again(f"{whose} has reached its limit of audio in a day: {most} s", use.audio_again)
    if (most := allowance.tokens) and use.tokens >= most:
        return _again(f"{whose} has reached its limit of tokens in a day: {most}", use.tokens_again)
    if (most := allowance.per_minute) and use.recent >= most:
        reason = f"{whose} has reached its limit of new calls and requests in a minute: {most}"
        return _again(reason, use.recent_again)
    return None


def _again(reason: str, seconds: float) -> CallRefused:
    return CallRefused(reason, max(1, math.ceil(seconds)))
