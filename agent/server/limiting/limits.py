"""Limits per API key or per address: calls at a time and in a minute, audio and tokens in a day."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Mapping

from rejoinder.agent.config import Settings
from rejoinder.agent.server.limiting.allowance import (
    MINUTE,
    NO_LIMITS,
    Allowance,
    CallRefused,
    Use,
    refused_use,
)
from rejoinder.agent.server.limiting.shared_use import SharedUse
from rejoinder.agent.server.operating.daily_use import DailyUse
from rejoinder.agent.wires.operating.call_limits import CallLimits
from rejoinder.pipeline import Overloaded

MAX_OWNERS = 10_000
"""Owners with calls of the last minute, beyond which those of earlier minutes are forgotten."""


class Limits:
    """The current use of each key or address at this server. It does no I/O and has no clock.

    Times are arguments, in seconds. usual: the allowance of owners without an entry in ``own``. whose: names
    the owner in a refusal. shared: takes the use for the store of all servers, None for this server only.
    Clients without an owner are not counted. Memory is bounded by the owners of the last minute and their
    calls.
    """

    def __init__(
        self,
        usual: Allowance,
        own: Mapping[str, Allowance] | None = None,
        whose: str = "this key",
        shared: SharedUse | None = None,
    ) -> None:
        self.whose = whose
        self.shared = shared
        self._usual = usual
        self._own = dict(own or {})
        self._running: Counter[str] = Counter()
        self._begun: dict[str, deque[float]] = {}
        self._audio = DailyUse()
        self._tokens = DailyUse()

    def replace_own(self, own: Mapping[str, Allowance]) -> None:
        """Take other allowances of single owners. What is in use stays counted."""
        self._own = dict(own)

    def allowance(self, owner: str, call: bool = True) -> Allowance:
        """Return the limits of an owner that apply to a call, or to a text request."""
        allowance = self._own.get(owner, self._usual) if owner else NO_LIMITS
        return allowance if call else allowance.of_request()

    def refusal(self, owner: str, now: float, call: bool = True) -> CallRefused | None:
        """Return why a call, or a text request, may not begin. It counts nothing.

        owner: the hash of the key, "" for none.
        """
        if (allowance := self.allowance(owner, call)) == NO_LIMITS:
            return None
        return refused_use(allowance, self._use(owner, now), self.whose)

    def count_call(self, owner: str, name: str = "") -> None:
        """Count a call until ``end``. Whether it may begin was decided before, by ``refusal``.

        name: under which the store of all servers knows it, "" where it does not.
        """
        if owner:
            self._running[owner] += 1
            if self.shared and self.allowance(owner).sessions:
                self.shared.hold(owner, name)

    def end(self, owner: str) -> None:
        """Stop counting a call."""
        self._running[owner] -= 1
        if self._running[owner] <= 0:
            del self._running[owner]
        if self.shared:
            self.shared.release(owner)

    def count_request(self, owner: str, now: float) -> None:
        """Count the begin of a call or request."""
        if not self.allowance(owner).per_minute:
            return
        if len(self._begun) >= MAX_OWNERS:
            recent = {one: times for one, times in self._begun.items() if times and now - times[-1] < MINUTE}
            self._begun = recent
        self._begun.setdefault(owner, deque()).append(now)

    def hear(self, owner: str, seconds: float, now: float) -> CallRefused | None:
        """Count audio of a caller, or return why no more is taken."""
        if not (most := self.allowance(owner).audio):
            return None
        if refused := refused_use(Allowance(audio=most), self._use(owner, now), self.whose, seconds):
            return refused
        self._audio.add(owner, seconds, now)
        if self.shared:
            self.shared.spend(owner, audio=seconds)
        return None

    def use_tokens(self, owner: str, tokens: int, now: float) -> None:
        """Count tokens of the language model that were used. They may go beyond the limit."""
        if self.allowance(owner).tokens and tokens > 0:
            self._tokens.add(owner, tokens, now)
            if self.shared:
                self.shared.spend(owner, tokens=tokens)

    def meter(self, owner: str) -> Callable[[int], None] | None:
        """Return what takes the tokens that an owner uses from now on, None without a limit of them."""
        if not self.allowance(owner).tokens:
            return None
        return lambda tokens: self.use_tokens(owner, tokens, time.monotonic())

    def out_of_tokens(self, owner: str, now: float) -> CallRefused | None:
        """Return why no more replies are written for an owner today. It counts nothing."""
        if not (most := self.allowance(owner).tokens):
            return None
        return refused_use(Allowance(tokens=most), self._use(owner, now), self.whose)

    def _use(self, owner: str, now: float) -> Use:
        begun = self._begun.get(owner, deque[float]())
        while begun and now - begun[0] >= MINUTE:
            begun.popleft()
        use = Use(
            self._running[owner],
            len(begun),
            self._audio.used(owner, now),
            self._tokens.used(owner, now),
            begun[0] + MINUTE - now if begun else MINUTE,
            self._audio.again(owner, now),
            self._tokens.again(owner, now),
        )
        return self.shared.joined(owner, use, now) if self.shared else use


def call_limits(limits: Limits, owner: str, settings: Settings) -> CallLimits:
    """Return the limits of one call. owner: the hash of its API key, "" for none."""

    def spend(seconds: float) -> None:
        if refused := limits.hear(owner, seconds, time.monotonic()):
            raise Overloaded(refused.reason)

    def write(tokens: int) -> None:
        limits.use_tokens(owner, tokens, time.monotonic())

    def used_up() -> str:
        refused = limits.out_of_tokens(owner, time.monotonic())
        return refused.reason if refused else ""

    return CallLimits(spend, settings.max_messages_per_s, settings.max_silent_s, write, used_up)
