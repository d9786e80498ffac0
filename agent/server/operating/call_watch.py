"""Watches the calls from outside, by the clock: ends those that are stuck, endless or over their length."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from math import inf

from rejoinder.agent.wires.call import Call
from rejoinder.agent.wires.departure import LAST_WORDS_SECONDS
from rejoinder.agent.wires.failures import Stuck
from rejoinder.pipeline import CallOver
from rejoinder.pipeline.call_timer import GRACE_SECONDS, longest_call
from rejoinder.pipeline.pulse import Pulse

log = logging.getLogger(__name__)

LOOK_SECONDS = 0.5
"""Interval between two looks at all calls, in seconds."""
LATE_LOOK_SECONDS = 2.0
"""A look that comes this much later, in seconds, shows that the process stood still, and no call alone."""
LATE_SECONDS = 2 * GRACE_SECONDS + 5.0
"""A call that lasts this much longer than ``max_call_s`` has not ended by itself, in seconds."""
END_SECONDS = LAST_WORDS_SECONDS + 5.0
"""A call that goes on for this long after its end was begun, in seconds, is named in the log."""
STUCK = "the call is stuck: nothing has happened for {:g} s"
"""Reason of a call whose pipeline shows no sign of life."""
ENDLESS = "the caller has spoken without an end for {} turns"
"""Reason of a call whose user does not stop, such as music while somebody is put on hold."""


class Overdue(StrEnum):
    """Why a call has to end, by the name in the metric."""

    STUCK = "stuck"
    ENDLESS = "endless"
    TOO_LONG = "too_long"


@dataclass(frozen=True, slots=True)
class CallLimits:
    """What ends a call from outside. stuck_s, endless_turns: 0 for never. words: said before."""

    stuck_s: float
    endless_turns: int
    words: str


def overdue(pulse: Pulse, limits: CallLimits) -> Overdue | None:
    """Return why a call has to end, None if it goes on."""
    if limits.stuck_s and pulse.stuck >= limits.stuck_s:
        return Overdue.STUCK
    if limits.endless_turns and pulse.endless >= limits.endless_turns:
        return Overdue.ENDLESS
    if pulse.longest and pulse.lasted >= pulse.longest + LATE_SECONDS:
        return Overdue.TOO_LONG
    return None


class CallWatch:
    """Watches calls while ``run`` runs. count: called with the name of each reason for which one is ended."""

    def __init__(self, limits: CallLimits, count: Callable[[str], None]) -> None:
        self._limits = limits
        self._count = count
        self._ending: dict[Call, float] = {}

    async def run(self, calls: Callable[[], Iterable[Call]]) -> None:
        """Look at all calls, again and again, until cancelled."""
        loop = asyncio.get_running_loop()
        late, last = -inf, loop.time()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            now, before, last = loop.time(), last, loop.time()
            if now - before > LOOK_SECONDS + LATE_LOOK_SECONDS:  # the process stood still, and not a call
                late = now
            rested = now - late > self._limits.stuck_s
            running = set(calls())
            self._ending = {call: at for call, at in self._ending.items() if call in running}
            for call in running:
                call.pulse.look()
                if call in self._ending:
                    self._check_end(call, now)
                elif not call.departure.begun and (why := overdue(call.pulse, self._limits)):
                    if rested or why is not Overdue.STUCK:
                        self._end(call, why)
                        self._ending[call] = now

    def _end(self, call: Call, why: Overdue) -> None:
        match why:
            case Overdue.STUCK:
                reason = STUCK.format(self._limits.stuck_s)
            case Overdue.ENDLESS:
                reason = ENDLESS.format(self._limits.endless_turns)
            case Overdue.TOO_LONG:
                reason = longest_call(call.pulse.longest)
        due = f" ({call.pulse.due})" if why is Overdue.STUCK else ""
        log.warning("call %s is ended from outside: %s%s", call.log.id, reason, due)
        self._count(why.value)
        call.departure.begin(self._limits.words, Stuck(reason) if why is Overdue.STUCK else CallOver(reason))

    def _check_end(self, call: Call, now: float) -> None:
        if now - self._ending[call] >= END_SECONDS:
            self._ending[call] = now
            log.error(
                "call %s does not end: a model or a function of the agent ignores cancelling", call.log.id
            )
