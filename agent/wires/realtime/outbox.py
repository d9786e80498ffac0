"""The newest events sent to a client. A broken socket may have lost them."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator

from rejoinder.agent.wires.realtime.events import ServerEvent

MAX_KEPT_BYTES = 2**19
"""Most characters of kept events: about 7 s of audio at 24 kHz. A dead socket takes about 200 KB (the buffers
of the kernel and of uvicorn) before a write blocks."""

OVERHEAD = 100
"""Memory of an event beside its text, in characters."""


class Outbox:
    """The newest events of a conversation, in the order in which they were sent."""

    def __init__(self) -> None:
        self.size = 0
        self._sent: deque[tuple[str, str]] = deque()

    def note(self, event: ServerEvent) -> str:
        """Record an event that is being sent; return it as JSON."""
        text = json.dumps(event)
        self._sent.append((event["event_id"], text))
        self.size += len(text) + OVERHEAD
        if self.size > MAX_KEPT_BYTES:
            self._trim()
        return text

    def after(self, event_id: str) -> list[str] | None:
        """Return the JSON of the events sent after an event, None where that event is no longer kept."""
        for place, (id_, _) in enumerate(self._sent):
            if id_ == event_id:
                return [text for _, text in list(self._sent)[place + 1 :] if text]
        return None

    def greet(self, event_id: str, greeting: list[ServerEvent]) -> None:
        """Record the greeting of a client that has read up to ``event_id``, without its text.

        The ids of the greeting then stand for the same place as ``event_id``.
        """
        place = next(place for place, (id_, _) in enumerate(self._sent) if id_ == event_id)
        for event in greeting:
            place += 1
            self._sent.insert(place, (event["event_id"], ""))
            self.size += OVERHEAD
        self._trim()

    def _trim(self) -> None:
        while self.size > MAX_KEPT_BYTES and len(self._sent) > 1:
            self.size -= len(self._sent.popleft()[1]) + OVERHEAD

    def clear(self) -> None:
        """Drop all events."""
        self.size = 0
        self._sent.clear()

    def __len__(self) -> int:
        """Return the number of kept events."""
        return len(self._sent)

    def __iter__(self) -> Iterator[ServerEvent]:
        """Iterate over the events, oldest first."""
        return (json.loads(text) for _, text in list(self._sent) if text)
