"""How many replicas are wanted, and what their applications are called."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Sequence
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rejoinder.models.ray.names import application, kind_of
from rejoinder.models.ray.replicas import EngineWaits
from rejoinder.models.ray.scaling import QUEUE_AGE, QueueAgePolicy, wanted_replicas
from rejoinder.pipeline.engines.engine import Engine


@pytest.mark.parametrize(
    ("waits", "running", "target", "wanted"),
    [
        ([0.0], 1, 1, 0),  # Ray keeps the least number
        ([0.05], 2, 2, 2),
        ([0.05, 0.12], 2, 2, 3),  # one replica is late: sessions stay with theirs
        ([5.0], 2, 2, 4),
        ([5.0], 1, 2, 2),  # the second one is starting
        ([0.0], 1, 2, 1),  # it cannot be placed, or is not needed any more
        ([], 2, 2, 2),  # nothing is known yet
        ([0.01, 0.02], 3, 3, 2),
    ],
)
def test_replicas_follow_the_waits(waits: list[float], running: int, target: int, wanted: int) -> None:
    assert wanted_replicas(waits, running, target, 0.1) == wanted


@given(
    waits=st.lists(st.floats(0.0, 100.0), min_size=1, max_size=8),
    running=st.integers(1, 50),
    wait_s=st.floats(0.01, 10.0),
)
def test_a_longer_wait_never_wants_fewer(waits: list[float], running: int, wait_s: float) -> None:
    wanted = wanted_replicas(waits, running, running, wait_s)
    longer = wanted_replicas([2.0 * wait for wait in waits], running, running, wait_s)
    assert running - 1 <= wanted <= longer <= 2 * running


def test_a_replica_that_has_ended_is_not_asked() -> None:
    context = SimpleNamespace(
        running_replicas=["a"],
        aggregated_metrics={QUEUE_AGE: {"a": 0.05, "gone": 9.0}},
        current_num_replicas=1,
        target_num_replicas=1,
    )
    assert QueueAgePolicy(0.1)(context) == (1, {})
    context.aggregated_metrics = {}
    assert QueueAgePolicy(0.1)(context) == (1, {})


def test_waits_count_since_the_last_look() -> None:
    release = threading.Event()

    def step(batch: Sequence[int]) -> Sequence[int]:
        release.wait(20.0)
        return batch

    engine: Engine[int, int] = Engine("slow", step)
    waits = EngineWaits([engine])

    async def use() -> None:
        assert waits.longest() == 0.0
        jobs = [asyncio.ensure_future(engine.run(number)) for number in range(2)]
        began = time.perf_counter()
        while engine.waiting != 1 or engine.age < 0.05:  # noqa: ASYNC110 - the engine has no event for it
            await asyncio.sleep(0.01)
        assert 0.05 <= waits.longest() <= time.perf_counter() - began
        release.set()
        await asyncio.gather(*jobs)
        assert waits.longest() >= 0.025  # the mean of both, of which one did not wait
        assert waits.longest() == 0.0

    try:
        asyncio.run(use())
    finally:
        release.set()
        engine.close()


@pytest.mark.parametrize(
    ("spec", "kind"),
    [
        ("whisper:tiny.en", "stt"),
        ("smart-turn", "turn"),
        ("piper:en_US-joe-medium", "tts"),
        ("scripted:stt|hello", "stt"),
        ("scripted:llm|hello", ""),
        ("silero", ""),
        ("ray:whisper:tiny.en", ""),
        ("", ""),
    ],
)
def test_the_role_of_a_model(spec: str, kind: str) -> None:
    assert kind_of(spec) == kind


def test_models_have_applications_of_their_own() -> None:
    specs = [
        "whisper:tiny.en",
        "piper:/a/b.onnx",
        "piper:/a-b.onnx",
        "whisper:tiny.en@de",
        "scripted:tts|a b",
    ]
    specs += ["piper:" + "x" * 200, "piper:" + "x" * 201]
    names = [application(spec) for spec in specs]
    assert names[0] == "rejoinder-whisper-tiny.en" and len(set(names)) == len(names)
    assert all(re.fullmatch(r"[\w.-]{1,90}", name) for name in names)
