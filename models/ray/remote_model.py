"""What recognisers, turn models and voices in a cluster have in common: a handle, and a connection."""

from __future__ import annotations

from typing import Any

from rejoinder.models.ray.cluster import connect, disconnect, handle_of, left


class RemoteModel:
    """A model in the cluster. spec: the model. options: of the handle that its requests go through.

    Raises ModelError if it is not deployed.
    """

    def __init__(self, spec: str, **options: Any) -> None:
        self._spec = spec
        connect()
        try:
            self._handle: Any = handle_of(spec).options(**options)
        except BaseException:
            disconnect()
            raise

    def close(self) -> None:
        """Leave the cluster. It may wait for seconds."""
        disconnect(self._handle)

    async def aclose(self) -> None:
        """Leave the cluster, while the event loop goes on. Cancelling ends the wait, and not the leaving."""
        await left(self._handle)
