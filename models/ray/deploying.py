"""Puts models into a Ray cluster, as applications of Ray Serve."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

from rejoinder.models.ray.cluster import in_cluster, last_line
from rejoinder.models.ray.names import RAY, application, kind_of
from rejoinder.models.ray.replicas import Replica
from rejoinder.models.ray.scaling import QUEUE_AGE_S, QueueAgePolicy
from rejoinder.models.registry import check
from rejoinder.pipeline.engines.engine import MOST_WAITING
from rejoinder.pipeline.errors import ModelError

MOST_REQUESTS = 2 * MOST_WAITING
"""Most requests at a time in one replica. Its engine runs the most urgent first, and refuses them earlier."""
MOST_QUEUED = 200
"""Most requests that wait in a call server for a replica; one more raises Overloaded."""
DEPLOY_SECONDS = 300.0
"""Longest wait for the replicas of a model."""
POLL_SECONDS = 0.2
"""Time between two looks at the state of the replicas."""
LONGEST_REQUEST_SECONDS = 60.0
"""Time in which a replica that is replaced finishes its requests: the longest clause of a voice."""


@dataclass(frozen=True, slots=True)
class Scale:
    """How many replicas a model has.

    least, most: their numbers; another one starts where requests wait longer than ``wait_s``. cores: that
    each one's engine uses. gpus: that each replica reserves. idle_s: seconds in which fewer would do, before
    one ends.
    """

    least: int = 1
    most: int = 1
    cores: int = 1
    gpus: float = 0.0
    wait_s: float = QUEUE_AGE_S
    idle_s: float = 60.0


def deploy(spec: str, scale: Scale) -> None:
    """Deploy a model, or change its scale; return when its replicas are ready. Raises ModelError.

    A change starts new replicas beside the old ones, which then finish their requests and end.
    """
    kind = kind_of(spec)
    if not kind:
        raise ModelError(RAY, f"{spec!r} cannot be deployed: only recognisers, turn models and voices can")
    check(kind, spec)
    with in_cluster():
        from ray import serve

        name = application(spec)
        try:
            serve.start(proxy_location="Disabled")  # its proxy is for HTTP
            served: Any = serve.deployment(Replica)
            app = served.options(name=kind, **_options(kind, scale)).bind(spec, scale.cores, scale.gpus > 0)
            run: Any = serve.run_many
            (handle,) = run([serve.RunTarget(app, name, None)], wait_for_applications_running=False)
            handle.shutdown()
            _await_running(spec, name)
        except ModelError:
            raise
        except Exception as error:  # Ray's errors have no common class
            raise ModelError(RAY, f"{spec} was not deployed: {last_line(error)}") from error


def _await_running(spec: str, name: str) -> None:
    from ray import serve

    until = time.monotonic() + DEPLOY_SECONDS
    while time.monotonic() < until:
        found: Any = serve.status().applications.get(name)
        if found and found.status in ("DEPLOY_FAILED", "UNHEALTHY"):
            reasons = [found.message, *(each.message for each in found.deployments.values())]
            raise ModelError(RAY, f"{spec} cannot run: {' '.join(' '.join(reasons).split())}")
        if found and found.status == "RUNNING":
            return
        time.sleep(POLL_SECONDS)
    raise ModelError(
        RAY,
        f"{spec} has no replica after {DEPLOY_SECONDS:g} s: `ray status` says whether the cluster has the "
        "processors and GPUs",
    )


def remove(spec: str) -> None:
    """Take a model out of the cluster, when its replicas have finished their requests. Raises ModelError."""
    with in_cluster():
        from ray import serve

        serve.delete(application(spec))


def _options(kind: str, scale: Scale) -> dict[str, Any]:
    from ray.serve.config import AutoscalingConfig, AutoscalingPolicy, RequestRouterConfig

    policy: Any = AutoscalingPolicy
    options: dict[str, Any] = {
        "num_replicas": scale.least,
        "max_ongoing_requests": MOST_REQUESTS,
        "max_queued_requests": MOST_QUEUED,
        "max_surge_percent": 100,
        "ray_actor_options": {"num_cpus": 0, "num_gpus": scale.gpus},
        "graceful_shutdown_timeout_s": LONGEST_REQUEST_SECONDS,
    }
    if scale.most > scale.least:
        del options["num_replicas"]
        options["autoscaling_config"] = AutoscalingConfig(
            min_replicas=scale.least,
            max_replicas=scale.most,
            policy=policy(policy_function=QueueAgePolicy, policy_kwargs={"wait_s": scale.wait_s}),
            upscale_delay_s=2.0,
            downscale_delay_s=scale.idle_s,
            metrics_interval_s=1.0,
            look_back_period_s=2.0,
        )
    if kind == "stt":  # the replica that has a turn's audio gets the rest
        router: Any = "ray.serve.experimental.consistent_hash_router:ConsistentHashRouter"
        options["request_router_config"] = RequestRouterConfig(request_router_class=router)
    return options
