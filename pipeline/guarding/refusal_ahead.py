"""Synthesises the sentence of a session's guard before it is needed."""

from __future__ import annotations

import asyncio

from rejoinder.pipeline.guarding.guard import Guard
from rejoinder.pipeline.guarding.refusal import Refusal
from rejoinder.pipeline.interfaces import Tts
from rejoinder.pipeline.replying.cancelled_tasks import CancelledTasks


class RefusalAhead:
    """Has the refusal of the guard synthesised in the background, in at most one task.

    It begins with ``begin``, and again where the guard or the voice changes. cancelled: takes the task of a
    synthesis that is stopped.
    """

    def __init__(self, guard: Guard | None, tts: Tts, cancelled: CancelledTasks) -> None:
        self._guard = guard
        self._tts = tts
        self._cancelled = cancelled
        self._begun = False
        self._task: asyncio.Task[None] | None = None
        self._under_way: tuple[Refusal, Tts] | None = None

    def begin(self) -> None:
        """Synthesise the sentence, and from now on that of each other guard or voice."""
        self._begun = True
        self._prepare()

    def use(self, guard: Guard | None, tts: Tts | None = None) -> None:
        """Use another guard, and another voice; None keeps the voice."""
        self._guard, self._tts = guard, tts or self._tts
        if self._begun:
            self._prepare()

    def close(self) -> None:
        """Stop the synthesis."""
        self._begun = False
        if self._task is not None and not self._task.done():
            self._task.cancel()
            self._cancelled.add(self._task)

    def _prepare(self) -> None:
        wanted = (self._guard.refusal, self._tts) if self._guard else None
        if wanted is None or wanted[0].audio(wanted[1]):
            return
        if self._task is not None and not self._task.done():
            if wanted == self._under_way:
                return
            self._task.cancel()
            self._cancelled.add(self._task)
        self._under_way = wanted
        self._task = asyncio.create_task(wanted[0].prepare(wanted[1]), name="refusal")
