"""Two call servers behind HAProxy, with Redis, and two replicas of a voice that are killed."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from support import speech
from support.scale.pair import Pair, pair
from support.scale.replicas import kill_one_of, until_replicas
from support.servers.redis import RedisServer
from support.serving import PATIENCE

from rejoinder.agent.client.audio import CLIENT_RATE
from rejoinder.agent.client.call import connect
from rejoinder.agent.client.events import AgentAudio, AgentSaid, ReplyDone
from rejoinder.models.ray.deploying import Scale, deploy, remove

pytestmark = [
    pytest.mark.scale,
    pytest.mark.server,
    pytest.mark.weights,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of Ray's imports
    pytest.mark.filterwarnings("ignore::FutureWarning:ray"),
]
VOICE = "piper:en_US-joe-medium"
KILLS = int(os.environ.get("REJOINDER_REPLICA_KILLS", "1"))
"""How often a replica is killed."""
CALLERS = 4
CLAUSES = (
    "This is the first sentence of a rather long answer, and it goes on for a while.",
    "Then there comes a second sentence, which is about as long as the one before it.",
    "And here is the third one, with a few more words, so that the answer takes its time.",
)
MOST_SILENT_S = 3.0
"""Most silence of a caller, in seconds: a voice that is asked anew takes less, also on a busy machine."""
MOST_ADDED_S = 0.3
"""Most silence that a kill may add, at the 95th percentile of the callers, where it is measured."""
MEASURED = 3
"""Kills from which this is a measurement, on an idle machine (docs/guides/scaling-out.md)."""


@pytest.fixture(scope="module")
def voices(cluster: str) -> Iterator[None]:
    speech.need(VOICE)
    deploy(VOICE, Scale(least=2))
    yield
    remove(VOICE)


async def listen(url: str, begun: asyncio.Event) -> float:
    """Request the answer, and hear it to its end. Return the seconds of silence in its middle."""
    loop, said = asyncio.get_running_loop(), ""
    async with asyncio.timeout(2 * PATIENCE), connect(url) as call:
        await call.add_text("Go on.")
        await call.respond()
        played_until, silence = 0.0, 0.0
        async for event in call:
            match event:
                case AgentAudio(pcm=pcm):
                    now = loop.time()
                    if played_until and now > played_until:
                        silence += now - played_until
                    played_until = max(played_until, now) + len(pcm) / 2 / CLIENT_RATE
                    begun.set()
                case AgentSaid(text=text):
                    said = text
                case ReplyDone(status=status):
                    assert (status, said) == ("completed", " ".join(CLAUSES))
                    return silence
    raise AssertionError("the call ended before its answer")


async def answers(servers: Pair, kills: bool) -> list[float]:
    """Return the silence that each caller has heard."""
    begun = [asyncio.Event() for _ in range(CALLERS)]
    url = f"ws://127.0.0.1:{servers.balancer.port}"
    async with asyncio.TaskGroup() as tasks:
        heard = [tasks.create_task(listen(url, one)) for one in begun]
        await asyncio.gather(*(one.wait() for one in begun))
        if kills:
            kill_one_of("tts")
    if kills:
        await until_replicas("tts", 2)
    return [one.result() for one in heard]


def test_killed_voice_ends_no_call_and_is_hardly_heard(
    voices: None, redis: RedisServer, tmp_path: Path
) -> None:
    redis.empty()
    llm = f"scripted:llm|{' '.join(CLAUSES)}"
    with pair(
        tmp_path, llm=llm, tts=f"ray:{VOICE}", conversations=redis.url, limits_store=redis.url
    ) as servers:
        undisturbed, disturbed = list[float](), list[float]()
        for _ in range(KILLS):
            undisturbed += asyncio.run(answers(servers, kills=False))
            disturbed += asyncio.run(answers(servers, kills=True))
    usual, worst = (float(np.percentile(each, 95)) for each in (undisturbed, disturbed))
    print(f"{KILLS} kills, {len(disturbed)} answers: silence p95 {usual:.3f} s, with a kill {worst:.3f} s")
    assert max(undisturbed + disturbed) <= MOST_SILENT_S
    assert KILLS < MEASURED or worst - usual <= MOST_ADDED_S
