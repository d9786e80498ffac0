"""What the history gets of each reply: its place when it is committed, and the words that the user heard."""

from __future__ import annotations

from collections import deque
from collections.abc import Container, Sequence

from rejoinder.pipeline.history import History
from rejoinder.pipeline.interfaces import ToolCall
from rejoinder.pipeline.prompt import Key
from rejoinder.pipeline.replying.reply import Reply
from rejoinder.pipeline.turns.agent_side import AgentSide

LEAST_HEARD_SECONDS = 0.3
"""An interrupted reply of which less was heard is not remembered: the user had not finished the turn."""
MAX_SETTLED = 8
"""Most replies whose heard words can still be corrected."""


class ReplyRecords:
    """Writes the replies of one session into its history, and keeps the last ones for corrections.

    agent: takes the heard words too: they are what the user answers next.
    """

    def __init__(self, history: History, agent: AgentSide) -> None:
        self._history = history
        self._agent = agent
        self._settled: deque[Reply] = deque(maxlen=MAX_SETTLED)

    @property
    def last(self) -> Reply | None:
        """The reply that was settled last, None if there is none."""
        return self._settled[-1] if self._settled else None

    def numbered(self, ids: Container[int]) -> list[Reply]:
        """Return the settled replies with these numbers, the oldest first."""
        return [reply for reply in self._settled if reply.id in ids]

    def begin(self, reply: Reply, key: Key | None) -> None:
        """Append the user's words that the reply answers, with this key, and the place for its own words."""
        if reply.text:
            self._history.add_user(reply.text, key)
        self._history.begin_reply(reply.id)

    def settle(self, reply: Reply, played: float, cut: bool) -> None:
        """Record the words heard in the first ``played`` seconds; again when more is known.

        cut: whether the reply was stopped before its end.
        """
        heard = reply.output.heard(played)
        answered = played - reply.output.playout.filled
        if reply.outcome.interrupted and cut and reply.settings.speaks and answered < LEAST_HEARD_SECONDS:
            heard = ""
        self._history.settle(reply.id, heard, cut)
        self._agent.was_heard(heard)
        if reply not in self._settled:
            self._settled.append(reply)

    def truncate(self, id: int, played: float) -> str | None:
        """Settle reply ``id`` at ``played`` seconds; return the words in them, None for an unknown reply."""
        heard = None
        for reply in self.numbered([id]):
            heard = reply.output.heard(played)
            self.settle(reply, played, cut=True)
        return heard

    def add_calls(self, reply: Reply) -> Sequence[ToolCall]:
        """Append the reply's tool calls; return them with identifiers that are unique in the history."""
        return [self._history.add_call(call) for call in reply.generation.calls]
