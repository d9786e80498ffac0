"""Calls the turn model in the pauses of one session."""

from __future__ import annotations

import asyncio
import logging

from rejoinder.pipeline.audio.chunk import AudioChunk
from rejoinder.pipeline.errors import ModelError, Overloaded, asking
from rejoinder.pipeline.interfaces import TurnModel
from rejoinder.pipeline.listening.hearing import React
from rejoinder.pipeline.listening.schedule import next_ask
from rejoinder.pipeline.turns.endpointer import Endpointer

log = logging.getLogger(__name__)


class PauseJudge:
    """Calls the turn model while the user pauses, and passes its answers to the floor.

    Where the model fails, the floor decides by the silence, as in a session without a turn model.

    react: takes the events that follow.
    """

    def __init__(self, model: TurnModel, floor: Endpointer, react: React) -> None:
        self._model = model
        self._floor = floor
        self._react = react
        self._pause: int | None = None
        self._asked_at: int | None = None  # end of the audio at the last call
        self._calls: list[asyncio.Task[None]] = []
        self._failing = False

    def follow(self, pause: int | None) -> None:
        """Begin with the pause that starts at a sample, or wait for one if it is None.

        Calls about another pause are cancelled: they would delay other sessions.
        """
        if pause != self._pause:
            for call in self._calls:
                call.cancel()
            self._pause, self._asked_at, self._calls = pause, None, []

    def is_due(self, heard: int) -> bool:
        """Return whether to call the model now. heard: end of the audio so far, in samples."""
        quiet_from = self._floor.quiet_from
        return quiet_from is not None and heard >= next_ask(quiet_from, self._asked_at)

    def ask(self, tasks: asyncio.TaskGroup, sound: AudioChunk, text: str) -> None:
        """Call the model about the pause, in a task of ``tasks``.

        sound: the turn's newest audio. text: the words recognised so far.
        """
        assert self._pause is not None
        self._asked_at = sound.end
        self._calls.append(tasks.create_task(self._judge(self._pause, sound, text)))

    async def _judge(self, pause: int, sound: AudioChunk, text: str) -> None:
        try:
            with asking("turn model", self._model):
                probability = await self._model.probability(sound.samples(), text)
        except (ModelError, Overloaded) as error:
            if not self._failing:
                log.warning("the turn model fails, so silence alone ends the turns: %s", error)
            self._failing = True
            return
        self._failing = False
        for event in self._floor.turn_model_answered(pause, probability):
            self._react(event)
