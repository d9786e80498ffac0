"""Which agent has a call, and which agents had it before."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rejoinder.agent.app.call import Call
from rejoinder.agent.app.knowledge import Knowledge

if TYPE_CHECKING:
    from rejoinder.agent.app.host import AgentHost

log = logging.getLogger(__name__)


class HandOvers:
    """The agents of one call, each with a ``Call`` of its own.

    call: of the agent that has the call now. knowledge: what its context functions return, None without any.
    first_words: what it says first, "" for an answer of its language model; None once it has spoken.
    """

    def __init__(self, call: Call[Any, Any], host: AgentHost) -> None:
        self.call = call
        self.first_words: str | None = None
        self._host = host
        self._earlier: list[tuple[int, Call[Any, Any]]] = []
        self.knowledge = self._knowledge_of(call)

    @property
    def calls(self) -> list[Call[Any, Any]]:
        """The ``Call`` of each agent, in the order in which they had it."""
        return [*(call for _, call in self._earlier), self.call]

    def call_of(self, reply: int) -> Call[Any, Any]:
        """Return the ``Call`` of the agent that gave a reply."""
        return next((call for last, call in self._earlier if reply <= last), self.call)

    def reply_started(self, reply: int) -> None:
        """Record that a reply begins."""
        if self._earlier and reply > self._earlier[-1][0]:
            self.first_words = None

    def take_over(self, new: Call[Any, Any], hand_over: Callable[[], int]) -> None:
        """Let another agent have the call, from the next reply on.

        new: its ``Call``. hand_over: tells the session; returns the number of the old agent's last reply.
        """
        old = self.call
        self.call, self.knowledge = new, self._knowledge_of(new)
        self._earlier.append((hand_over(), old))
        self.first_words = new.greeting
        log.info("call %s: %s hands it to %s", new.info.id, old.agent.name, new.agent.name)

    def _knowledge_of(self, call: Call[Any, Any]) -> Knowledge | None:
        functions = call.agent.hooks.context
        return Knowledge(call, functions, self._host) if functions else None
