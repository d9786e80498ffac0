"""Makes the wire of a Realtime call: for a new conversation, or for one of another process."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, Protocol

from rejoinder.agent.server.journal.journal import Found
from rejoinder.agent.wires.realtime.protocol import Realtime
from rejoinder.agent.wires.realtime.resuming import ResumeRequest
from rejoinder.pipeline import Options, ProtocolError

log = logging.getLogger(__name__)


class NewWire(Protocol):
    """Makes the wire of a conversation. conversation: its id, "" for a new one."""

    def __call__(self, options: Options, *, conversation: str = "") -> Realtime:
        """Return the wire. options: of its session."""


def opened(
    new: NewWire,
    options: Options,
    session: dict[str, Any] | None,
    found: Found | None,
    request: ResumeRequest,
) -> Realtime | None:
    """Return the wire of a call that begins, None where the client may not begin one.

    session: the session object of the client's key, empty for none, None where the key is not valid. found:
    the conversation that the client resumes, None for none. A conversation that this server cannot read, or
    whose settings it refuses, begins anew; that takes a valid key.
    """
    if found:
        wire = new(replace(options, greeting=""), conversation=request.conversation)
        try:
            wire.restore(found.state, found.reply, request.item, request.played_ms)
            return wire
        except (ProtocolError, LookupError, TypeError, ValueError) as error:
            log.warning("a conversation cannot go on: %s", error)
    if session is None:
        return None
    wire = new(options)
    if session:
        wire.prepare(session)
    wire.wanted = request.conversation
    return wire
