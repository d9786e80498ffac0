"""What a conversation has told its client lately: what a broken socket may have swallowed."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator

from rejoinder.agent.wires.realtime.events import ServerEvent

MAX_BYTES = 2**19
"""Characters of events that are kept: some 7 s of audio at 24 kHz. A socket that takes nothing more swallows
some 200 KB (its buffer in the kernel and uvicorn's) before that is noticed."""

OVERHEAD = 100
"""What an event costs besides."""


class Outbox:
    """The newest events of a conversation, in the order in which they were sent."""

    def __init__(self) -> None:
        self.size = 0
        self._sent: deque[tuple[str, str]] = deque()

    def note(self, event: ServerEvent) -> str:
        """Keep an event; return it as JSON."""
        text = json.dumps(event)
        self._sent.append((event["event_id"], text))
        self.size += len(text) + OVERHEAD
        self._trim()
        return text

    def after(self, event_id: str) -> list[str] | None:
        """Return what was sent after an event; None where that is not known any more."""
        for place, (id_, _) in enumerate(self._sent):
            if id_ == event_id:
                return [text for _, text in list(self._sent)[place + 1 :] if text]
        return None

    def greet(self, event_id: str, greeting: list[ServerEvent]) -> None:
        """Note what greets a client that has read up to ``event_id``: it adds nothing to that."""
        place = next(place for place, (id_, _) in enumerate(self._sent) if id_ == event_id)
        for event in greeting:
            place += 1
            self._sent.insert(place, (event["event_id"], ""))
            self.size += OVERHEAD
        self._trim()

    def _trim(self) -> None:
        while self.size > MAX_BYTES and len(self._sent) > 1:
            self.size -= len(self._sent.popleft()[1]) + OVERHEAD

    def clear(self) -> None:
        """Forget all of it."""
        self.size = 0
        self._sent.clear()

    def __len__(self) -> int:
        """Count what is kept."""
        return len(self._sent)

    def __iter__(self) -> Iterator[ServerEvent]:
        """Return the events, the oldest first."""
        return (json.loads(text) for _, text in list(self._sent) if text)
