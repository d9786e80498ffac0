"""Puts models into a Ray cluster, as applications of Ray Serve."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rejoinder.models.ray.cluster import in_cluster
from rejoinder.models.ray.names import RAY, application, kind_of
from rejoinder.models.ray.replicas import Replica
from rejoinder.models.ray.scaling import QUEUE_AGE_S, QueueAgePolicy
from rejoinder.models.registry import check
from rejoinder.pipeline.errors import ModelError

MOST_REQUESTS = 200
"""Most requests at a time in one replica, whose engine runs the most urgent first; more wait in servers."""

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
    """Deploy a model, or change its scale; return when a replica is ready. Raises ModelError.

    A change replaces the replicas one after another, and each finishes its requests first.
    """
    kind = kind_of(spec)
    if not kind:
        raise ModelError(RAY, f"{spec!r} cannot be deployed: only recognisers, turn models and voices can")
    check(kind, spec)
    with in_cluster():
        from ray import serve

        serve.start(proxy_location="Disabled")  # its proxy is for HTTP
        served: Any = serve.deployment(Replica)
        app = served.options(name=kind, **_options(kind, scale)).bind(spec, scale.cores)
        handle: Any = serve.run(app, name=application(spec), route_prefix=None)
        try:
            handle.ready.remote().result()
        finally:
            handle.shutdown()


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
