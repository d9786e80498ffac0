"""The connection of a call server to a Ray cluster, and requests to the replicas in it.

A call server runs on a machine of the cluster. Its requests go from process to process, past Ray's proxy.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rejoinder.models.hints import require
from rejoinder.models.ray.names import RAY, application
from rejoinder.pipeline.errors import ModelError

NAMESPACE = "rejoinder"
"""Ray's namespace of everything that belongs to this program."""
CLUSTER_SECONDS = 5.0
"""Longest wait for the cluster to take a connection."""
NO_CLUSTER = "there is no Ray cluster here; start one with: ray start --head"
"""The error where nothing answers."""

_lock = threading.Lock()
_users = 0
"""How many models of this process are in the cluster."""


class ReplicaLost(Exception):
    """The process that worked on a request has died, or cannot be reached."""


def connect() -> None:
    """Connect this process to the cluster of ``$RAY_ADDRESS``, or else of this machine. Raises ModelError."""
    global _users
    require(RAY, [RAY], RAY)
    with _lock:
        # Otherwise whatever of Ray's is still running after a shutdown starts a cluster of its own here.
        os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")
        import ray
        import ray.serve

        if not ray.is_initialized():
            for name in ("ray.serve", "ray._private.worker"):
                logging.getLogger(name).setLevel(logging.ERROR)  # each replica that comes or goes is a line
            _check_address(os.environ.get("RAY_ADDRESS", ""))
            try:
                ray.init(address="auto", namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
            except (ConnectionError, RuntimeError) as error:
                raise ModelError(RAY, f"{NO_CLUSTER} ({error})") from error
        _users += 1


def _check_address(address: str) -> None:
    """Raise ModelError if nothing listens there: Ray itself would try for a minute."""
    host, _, port = address.rpartition(":")
    if not port.isdigit():
        return  # "auto", or none: Ray looks for a cluster on this machine
    try:
        socket.create_connection((host.strip("[]"), int(port)), CLUSTER_SECONDS).close()
    except OSError as error:
        raise ModelError(RAY, f"{NO_CLUSTER} (nothing listens at {address}: {error})") from error


def disconnect(handle: Any = None) -> None:
    """Leave the cluster with the last model of this process. handle: what its requests went through."""
    global _users
    import ray

    with _lock:
        if handle is not None:
            handle.shutdown()
        _users -= 1
        if not _users:
            ray.shutdown()


@contextmanager
def in_cluster() -> Iterator[None]:
    """Be connected to the cluster for the block. Raises ModelError."""
    connect()
    try:
        yield
    finally:
        disconnect()


def machines() -> int:
    """Return how many machines the cluster has."""
    import ray

    nodes: Any = ray.nodes
    return sum(bool(node["Alive"]) for node in nodes())


def handle_of(spec: str) -> Any:
    """Return a handle to the deployment of a model, when one of its replicas is ready. Raises ModelError."""
    from ray import serve
    from ray.serve.exceptions import RayServeException

    try:
        return serve.get_app_handle(application(spec))
    except RayServeException as error:
        raise ModelError(
            RAY, f"{spec} is not deployed in this cluster: run rejoinder deploy {spec}: {error}"
        ) from error


async def answer(response: Any) -> Any:
    """Return the result of a request. Raises ModelError, and ReplicaLost. Cancelling ends the work."""
    from ray.exceptions import RayError

    try:
        return await response
    except asyncio.CancelledError:
        response.cancel()
        raise
    except (RayError, ModelError) as error:
        raise translated(error) from error


def translated(error: Exception) -> Exception:
    """Return what an error of Ray means to the pipeline."""
    from ray.exceptions import RayActorError, RayTaskError

    cause = error.cause if isinstance(error, RayTaskError) else error
    if isinstance(cause, RayActorError):
        return ReplicaLost(str(cause))
    if isinstance(cause, ModelError):
        return cause
    return ModelError(RAY, f"a replica failed: {cause}")
