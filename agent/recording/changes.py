"""The begin and the end of recordings, for clients."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RecordingChange:
    """A recording has begun or ended. id: of the recording, "" if there is none. reason: why it ended."""

    id: str
    running: bool
    reason: str = ""
