"""How many replicas a model needs: by how long requests wait in the queues of its replicas.

Ray Serve calls the policy in its controller, about once a second.
"""

from __future__ import annotations

import math
from typing import Any

QUEUE_AGE = "queue_age_s"
"""The name under which replicas report how long requests wait."""
QUEUE_AGE_S = 0.1
"""Wait in seconds at which another replica starts: a third of the time until an answer is heard."""
CALM_SHARE = 0.25
"""Share of ``QUEUE_AGE_S`` below which one replica less would do."""
MOST_GROWTH = 2.0
"""Most replicas that are wanted at once, as a multiple of those that run."""


def wanted_replicas(waits: list[float], running: int, target: int, wait_s: float) -> int:
    """Return the number of replicas that is wanted.

    waits: seconds that requests wait in each replica. running: replicas that take requests. target: replicas
    that were wanted last. wait_s: the wait that is accepted.
    """
    if not waits:
        return target
    wait = max(waits)
    if running < target:  # a replica that starts will shorten the waits; without them, it is not needed
        return target if wait >= CALM_SHARE * wait_s else running
    if wait > wait_s:
        return math.ceil(running * min(MOST_GROWTH, wait / wait_s))
    return target - 1 if wait < CALM_SHARE * wait_s else target


class QueueAgePolicy:
    """A policy of Ray Serve. wait_s: the wait in seconds that is accepted.

    Ray keeps its answers within the limits of a deployment, and delays them as its configuration says.

    Source: https://docs.ray.io/en/latest/serve/advanced-guides/advanced-autoscaling.html
    """

    def __init__(self, wait_s: float = QUEUE_AGE_S) -> None:
        self._wait_s = wait_s

    def __call__(self, context: Any) -> tuple[int, dict[str, Any]]:
        """Return the number of replicas that is wanted, and no state."""
        running = {str(replica) for replica in context.running_replicas}
        reported = (context.aggregated_metrics or {}).get(QUEUE_AGE, {})
        waits = [wait for replica, wait in reported.items() if str(replica) in running]
        count = context.current_num_replicas
        return wanted_replicas(waits, count, context.target_num_replicas, self._wait_s), {}
