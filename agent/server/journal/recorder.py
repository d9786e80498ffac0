"""Follows one call, and returns what has changed of its conversation since the last write."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from rejoinder.agent.app.tool_result import ToolReturned
from rejoinder.agent.server.journal.store import Save
from rejoinder.agent.wires.observer import Observed
from rejoinder.agent.wires.realtime.protocol import Realtime
from rejoinder.agent.wires.realtime.restoring import saved_position
from rejoinder.pipeline import (
    EndOfTurn,
    NobodySpoke,
    NothingSaid,
    ReplyCalled,
    ReplyDone,
    ReplyStarted,
    ReplyText,
    Session,
    SpeechStarted,
)

if TYPE_CHECKING:
    from rejoinder.agent.server.journal.journal import Journal

CHANGES = (
    *(SpeechStarted, EndOfTurn, NothingSaid, NobodySpoke, ReplyStarted, ReplyText, ReplyCalled, ReplyDone),
    ToolReturned,
)
"""Events that change a conversation."""
STATE_PART = "state"
"""The part of a conversation that changes with each turn."""
REPLY_PART = "reply"
"""The part that changes while a reply is heard."""
MAX_STATE_BYTES = 2**20
"""Largest state that is written, in bytes. JSON of this size holds up the event loop for about 10 ms."""

BATCH = 16
"""Elements of a list that are encoded at once, each at most about as large as a message: 128 KiB."""
JSON = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))
"""Writes the parts."""


class ConversationRecorder:
    """A ``CallObserver`` that follows a call for the journal.

    key: the hash of the conversation's id. generation: of this process as its owner. new: whether the store
    does not have it yet; the journal clears it after the first write. about: the keys with which it may be
    resumed, and the parameters of its address.
    """

    def __init__(
        self,
        journal: Journal,
        wire: Realtime,
        key: str,
        generation: int,
        new: bool,
        about: Mapping[str, Any],
    ) -> None:
        self.key = key
        self.generation = generation
        self.new = new
        self.oversized = False
        self._journal = journal
        self._wire = wire
        self.about = about
        self._session: Session | None = None
        self._changed = self._spoke = False
        self._reply = b""

    # --- what happens in the call -----------------------------------------------------------------------

    def begin(self, session: Session) -> None:
        """Take the session of the call."""
        self._session = session
        self.changed()

    def take(self, event: Observed) -> None:
        """Take an event."""
        if isinstance(event, CHANGES):
            self.changed()

    def end(self, error: BaseException | None, reason: str) -> None:
        """Take the end of the call. The conversation may go on elsewhere, so it changes nothing."""

    def changed(self) -> None:
        """Let the journal write the conversation soon."""
        self._changed = True
        self._journal.wake()

    async def written(self) -> None:
        """Wait until the changes are in the store, or the store is late. Cancelling stops waiting."""
        await self._journal.written(self)

    # --- what is written --------------------------------------------------------------------------------

    @property
    def speaking(self) -> bool:
        """Whether a reply is being heard, so that its position changes."""
        return self._session is not None and self._session.reply is not None

    @property
    def has_changed(self) -> bool:
        """Whether something is to be written."""
        return self._session is not None and (self._changed or self.speaking or self._spoke)

    def rewrite(self) -> None:
        """Write everything again: the last write failed."""
        self._changed, self._reply = True, b""

    def save(self) -> Save:
        """Return the next write. It takes all that has happened until now.

        A state above ``MAX_STATE_BYTES`` is left out, and ``oversized`` is set.
        """
        parts: dict[str, bytes] = {}
        if (session := self._session) is not None and self.has_changed:
            if self._changed:
                state = {**self._wire.saved(session.history.entries), "about": self.about}
                body = encoded_state(state)
                if body is not None:
                    parts[STATE_PART] = body
                self.oversized = body is None
            reply = _encoded(saved_position(session.position()))
            if reply != self._reply:
                parts[REPLY_PART] = self._reply = reply
            self._changed, self._spoke = False, self.speaking
        return Save(self.key, self.generation, self.new, parts)


def encoded_state(state: Mapping[str, Any]) -> bytes | None:
    """Return a state as JSON, None if it is larger than ``MAX_STATE_BYTES``.

    Lists are encoded in batches, and no further than to that size.
    """
    fields, size = [], 0
    for name, value in state.items():
        batches = []
        for batch in _batches(value):
            batches.append(batch)
            if (size := size + len(batch)) > MAX_STATE_BYTES:
                return None
        body = b",".join(batches)
        fields.append(_encoded(name) + b":" + (b"[" + body + b"]" if isinstance(value, list) else body))
    return b"{" + b",".join(fields) + b"}"


def _batches(value: object) -> Iterator[bytes]:
    """Yield the JSON of a list in batches, without its brackets; of another value at once."""
    if not isinstance(value, list):
        yield _encoded(value)
        return
    for start in range(0, len(value), BATCH):
        yield _encoded(value[start : start + BATCH])[1:-1]


def _encoded(part: object) -> bytes:
    return JSON.encode(part).encode("utf-8", "surrogatepass")
