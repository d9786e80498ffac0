"""A turn model in replicas."""

from __future__ import annotations

from rejoinder.models.ray.cluster import ReplicaLost, answer, connect, disconnect, handle_of
from rejoinder.models.ray.messages import work
from rejoinder.models.ray.names import RAY
from rejoinder.pipeline.audio.chunk import Samples
from rejoinder.pipeline.errors import ModelError

TURN_ATTEMPTS = 3
"""Most replicas that are asked one question, each after the one before has died."""


class RayTurnModel:
    """A turn model in the cluster. spec: the model. Raises ModelError if it is not deployed."""

    def __init__(self, spec: str) -> None:
        connect()
        try:
            self._handle = handle_of(spec).options(method_name="probability")
        except BaseException:
            disconnect()
            raise

    async def probability(self, audio: Samples, text: str) -> float:
        """Return the probability that the speaker has finished. Raises ModelError.

        Cancelling ends the work.
        """
        lost = ""
        for _ in range(TURN_ATTEMPTS):
            try:
                found: float = await answer(self._handle.remote(audio, text, work()))
            except ReplicaLost as error:
                lost = str(error)
            else:
                return found
        raise ModelError(RAY, f"{TURN_ATTEMPTS} replicas died: {lost}")

    def close(self) -> None:
        """Leave the cluster."""
        disconnect(self._handle)
