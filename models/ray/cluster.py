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
from rejoinder.pipeline.errors import ModelError, Overloaded, PipelineError

NAMESPACE = "rejoinder"
"""Ray's namespace of everything that belongs to this program."""
CLUSTER_SECONDS = 5.0
"""Longest wait for the cluster to take a connection."""
NO_CLUSTER = "there is no Ray cluster here; start one with: ray start --head"
"""The error where nothing answers."""

_lock = threading.Lock()
_users = 0
"""How many models of this process are in the cluster."""
_ours = False
"""Whether this module opened the connection. A program that embeds the pipeline may have its own."""


RETRY_SECONDS = 0.1
"""Pause before another replica is asked: one that is out of reach for a moment may be back."""


class ReplicaLost(Exception):
    """The process that worked on a request has died, or cannot be reached."""


def connect() -> None:
    """Connect this process to the cluster of ``$RAY_ADDRESS``, or else of this machine. Raises ModelError."""
    global _users, _ours
    require(RAY, [RAY], RAY)
    with _lock:
        # Otherwise whatever of Ray's is still running after a shutdown starts a cluster of its own here.
        os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")
        import ray
        import ray.serve
        from ray.exceptions import RayError

        if not ray.is_initialized():
            for name in ("ray.serve", "ray._private.worker"):
                logging.getLogger(name).setLevel(logging.ERROR)  # each replica that comes or goes is a line
            _check_address(os.environ.get("RAY_ADDRESS", ""))
            try:
                ray.init(address="auto", namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
            except (ConnectionError, RuntimeError, ValueError, RayError) as error:
                raise ModelError(RAY, f"{NO_CLUSTER} ({last_line(error)})") from error
            _ours = True
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
    """Leave the cluster with the last model of this process. It may wait for seconds.

    handle: what the model's requests went through.
    """
    global _users, _ours
    import ray

    with _lock:
        if handle is not None:
            handle.shutdown()
        _users -= 1
        if not _users and _ours:
            _ours = False
            ray.shutdown()


async def left(handle: Any) -> None:
    """Leave the cluster as ``disconnect`` does, while the event loop goes on.

    Cancelling ends the wait, and not the leaving.
    """
    await asyncio.shield(asyncio.to_thread(disconnect, handle))


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


async def answer(response: Any, seconds: float) -> Any:
    """Return the result of a request, or the next item of a stream. ``response``: what can be awaited.

    Raises PipelineError, ReplicaLost, and TimeoutError after ``seconds``: while no replica is up, Ray waits
    for one without a limit. Cancelling ends the wait; the caller ends the work.
    """
    try:
        async with asyncio.timeout(seconds):
            return await response
    except asyncio.CancelledError as error:
        if (task := asyncio.current_task()) and task.cancelling():
            raise
        raise ReplicaLost("the replica gave the request up") from error
    except (StopAsyncIteration, TimeoutError):
        raise
    except Exception as error:
        raise translated(error) from error


async def ask(handle: Any, seconds: float, *arguments: Any) -> Any:
    """Return the result of a method of a replica. Raises what ``answer`` raises. Cancelling ends the work."""
    response = handle.remote(*arguments)
    try:
        return await answer(response, seconds)
    finally:
        response.cancel()


def too_late(spec: str, seconds: float) -> ModelError:
    """Return the error where no replica answers."""
    return ModelError(RAY, f"no replica of {spec} has answered for {seconds:g} s", "model_timeout")


def translated(error: Exception) -> Exception:
    """Return what an error of Ray means to the pipeline: its cause, a lost replica, or a failed one."""
    from ray.exceptions import RayError, RaySystemError, RayTaskError, UnserializableException
    from ray.serve.exceptions import BackPressureError, DeploymentUnavailableError

    cause = error.cause if isinstance(error, RayTaskError) else error
    if isinstance(cause, PipelineError | ReplicaLost):
        return cause
    if isinstance(cause, BackPressureError):
        return Overloaded("its replicas have too many requests waiting", RAY)
    if isinstance(cause, DeploymentUnavailableError):
        return ModelError(RAY, f"the model was taken out of the cluster: {last_line(cause)}")
    if isinstance(cause, RayError) and not isinstance(
        cause, RayTaskError | RaySystemError | UnserializableException
    ):
        return ReplicaLost(last_line(cause))  # its process or its machine is gone, or out of reach
    return ModelError(RAY, f"a replica failed: {last_line(cause)}")


def last_line(error: BaseException) -> str:
    """Return the last line of a message: Ray's are whole tracebacks."""
    lines = str(error).strip().splitlines()
    return lines[-1].strip() if lines else type(error).__name__
