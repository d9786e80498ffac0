"""A turn model in replicas."""

from __future__ import annotations

import asyncio

from rejoinder.models.ray.cluster import RETRY_SECONDS, ReplicaLost, ask
from rejoinder.models.ray.messages import work
from rejoinder.models.ray.names import RAY
from rejoinder.models.ray.remote_model import RemoteModel
from rejoinder.pipeline.audio.chunk import Samples
from rejoinder.pipeline.errors import Overloaded

TURN_SECONDS = 2.0
"""Longest wait for an answer. After that, the words and the silence decide whether the turn is over."""
TURN_ATTEMPTS = 3
"""Most replicas that are asked one question, each after the one before has died."""


class RayTurnModel(RemoteModel):
    """A turn model in the cluster. spec: the model. Raises ModelError if it is not deployed."""

    def __init__(self, spec: str) -> None:
        super().__init__(spec, method_name="probability")

    async def probability(self, audio: Samples, text: str) -> float:
        """Return the probability that the speaker has finished.

        Raises Overloaded where no replica answers in time, and ModelError if the model fails. Cancelling ends
        the work.
        """
        lost = ""
        for _ in range(TURN_ATTEMPTS):
            try:
                found: float = await ask(self._handle, TURN_SECONDS, audio, text, work())
            except TimeoutError:
                raise Overloaded(f"no replica has answered for {TURN_SECONDS:g} s", RAY) from None
            except ReplicaLost as error:
                lost = str(error)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return found
        raise Overloaded(f"{TURN_ATTEMPTS} replicas are lost: {lost}", RAY)
