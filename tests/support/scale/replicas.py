"""Replicas of models in a Ray cluster of this machine: found, killed, and awaited."""

from __future__ import annotations

import asyncio
import os
import re
import signal

import psutil


def pids(kind: str) -> set[int]:
    """Return the replicas of a role."""
    found = re.compile(rf"ray::ServeReplica:rejoinder-.*:{kind}\b")
    return {
        each.pid for each in psutil.process_iter(["cmdline"]) if found.match(" ".join(each.info["cmdline"]))
    }


def kill_one_of(kind: str) -> None:
    """Kill a replica that is at work: the one of its role that has used the processor most."""
    replicas = [psutil.Process(pid) for pid in pids(kind)]
    busiest = max(replicas, key=lambda each: sum(each.cpu_times()[:2]))
    os.kill(busiest.pid, signal.SIGKILL)


async def until_replicas(kind: str, count: int) -> None:
    """Wait until Ray has started as many again. Raises TimeoutError."""
    async with asyncio.timeout(300):
        while len(pids(kind)) < count:  # noqa: ASYNC110 - Ray has no event for it
            await asyncio.sleep(0.5)
