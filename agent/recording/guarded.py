"""Keeps faults in recordings from the replies that they listen to."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from rejoinder.pipeline.audio.played import Listeners, PlayoutListener


class GuardedListeners(Listeners):
    """Listeners whose faults a context manager takes. guard: returns it."""

    def __init__(
        self, guard: Callable[[], AbstractContextManager[None]], *listeners: PlayoutListener
    ) -> None:
        super().__init__(*listeners)
        self._guard = guard

    def _each(self, step: Callable[[PlayoutListener], None]) -> None:
        with self._guard():
            super()._each(step)
