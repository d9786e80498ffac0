"""Replicas of a voice in Ray Serve follow the number of callers, and no caller hears it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import aclosing
from typing import Any

import pytest
from support import speech

from rejoinder.models.ray.cluster import in_cluster
from rejoinder.models.ray.deploying import Scale, deploy, remove
from rejoinder.models.ray.names import application
from rejoinder.models.ray.voice import RayVoice

pytestmark = [
    pytest.mark.scale,
    pytest.mark.weights,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of Ray's imports
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
]

VOICE = "piper:en_US-joe-medium"
MOST, CALLERS = 4, 12
LINE = "One two three four five six seven eight."


@pytest.fixture
def voice(cluster: str) -> Iterator[RayVoice]:
    speech.need(VOICE)
    deploy(VOICE, Scale(least=1, most=MOST, idle_s=5.0))
    voice = RayVoice(VOICE)
    yield voice
    voice.close()
    remove(VOICE)


def running() -> int:
    """Return the replicas that answer."""
    with in_cluster():
        from ray import serve

        of_voice: Any = serve.status().applications[application(VOICE)].deployments["tts"]
        return int(of_voice.replica_states.get("RUNNING", 0))


async def until_running(count: int) -> float:
    """Wait for this number of replicas and return the seconds that took. Raises TimeoutError."""
    began = time.monotonic()
    async with asyncio.timeout(150):
        while await asyncio.to_thread(running) != count:  # noqa: ASYNC110 - Ray has no event for it
            await asyncio.sleep(0.5)
    return time.monotonic() - began


async def heard(voice: RayVoice) -> int:
    """Return the samples of a line, none of which may be left out or repeated."""
    samples = 0
    async with aclosing(voice.speak(LINE)) as chunks:
        async for chunk in chunks:
            assert chunk.start == samples
            samples = chunk.end
    return samples


def test_replicas_follow_a_burst_and_go_without_cutting_a_stream(voice: RayVoice) -> None:
    async def burst() -> None:
        whole = await heard(voice)
        assert await asyncio.to_thread(running) == 1
        most, fewest = asyncio.Event(), asyncio.Event()

        async def call(until: asyncio.Event) -> None:
            while not until.is_set():
                assert await heard(voice) == pytest.approx(whole, rel=0.2)

        async with asyncio.TaskGroup() as calls:
            for _ in range(CALLERS):
                calls.create_task(call(most))
            print(f"{MOST} replicas after {await until_running(MOST):.1f} s")
            most.set()
        async with asyncio.TaskGroup() as calls:
            calls.create_task(call(fewest))
            print(f"1 replica after {await until_running(1):.1f} s")
            fewest.set()

    asyncio.run(burst())
