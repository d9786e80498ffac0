"""Which agent has a call, and which agents had it before."""

from __future__ import annotations

import logging
from collections.abc import Callable

from rejoinder.agent.app.call import Call

log = logging.getLogger(__name__)


class HandOvers:
    """The agents of one call, each with a ``Call`` of its own.

    call: of the agent that has the call now. first_words: what it says first, "" for an answer of its
    language model; None once it has spoken.
    """

    def __init__(self, call: Call) -> None:
        self.call = call
        self.first_words: str | None = None
        self._earlier: list[tuple[int, Call]] = []

    @property
    def calls(self) -> list[Call]:
        """The ``Call`` of each agent, in the order in which they had it."""
        return [*(call for _, call in self._earlier), self.call]

    def call_of(self, reply: int) -> Call:
        """Return the ``Call`` of the agent that gave a reply."""
        return next((call for last, call in self._earlier if reply <= last), self.call)

    def reply_started(self, reply: int) -> None:
        """Record that a reply begins."""
        if self._earlier and reply > self._earlier[-1][0]:
            self.first_words = None

    def take_over(self, new: Call, hand_over: Callable[[], int]) -> None:
        """Let another agent have the call, from the next reply on.

        new: its ``Call``. hand_over: tells the session; returns the number of the old agent's last reply.
        """
        old = self.call
        self.call = new
        self._earlier.append((hand_over(), old))
        self.first_words = new.greeting
        names = [one.agent.name if one.agent else "" for one in (old, new)]
        log.info("call %s: %s hands it to %s", new.info.id, *names)
