"""A server whose models fail on a word, another caller who talks all the time, and the server's metrics."""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.serving import PATIENCE, Server, Talk, serving

from rejoinder.agent.bench.faults.plugin import FAULTY, FAULTY_MODELS, install_models

MODELS = {**FAULTY_MODELS, "frozen": "support.servers.frozen_models:opened"}


@contextmanager
def faulty_serving(folder: Path, clean: bool = False, **flags: str) -> Iterator[Server]:
    """Serve with models that fail on a word: see ``agent/bench/faults/models.py``."""
    installed = install_models(folder, MODELS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(installed))
        with serving(folder, clean=clean, **{**FAULTY, **flags}) as server:
            yield server


def metric(server: Server, name: str, key: str = "", **labels: str) -> float:
    """Return the value of a metric, of all series that have these labels. key: that the server asks for."""
    shown = {"Authorization": f"Bearer {key}"} if key else {}
    request = urllib.request.Request(f"{server.http}/metrics", headers=shown)
    with urllib.request.urlopen(request, timeout=PATIENCE) as response:
        families = list(text_string_to_metric_families(response.read().decode()))
    samples = [
        sample for family in families for sample in family.samples if sample.name == f"rejoinder_{name}"
    ]
    assert samples, name
    return sum(one.value for one in samples if labels.items() <= one.labels.items())


def until(true: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
    """Wait until something is true of the server."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def ask(call: Talk, words: str) -> dict[str, Any]:
    """Type something, and return the response to it."""
    content = [{"type": "input_text", "text": words}]
    call.send("conversation.item.create", item={"type": "message", "role": "user", "content": content})
    call.send("response.create")
    response: dict[str, Any] = call.until("response.done")["response"]
    return response


def shout(call: Talk) -> dict[str, Any]:
    """Say something at full scale, and return the response to it."""
    wave = np.repeat(np.array([32767, -32767], "<i2"), 60)  # 200 Hz
    quiet = np.zeros(int(2.6 * 24_000), "<i2")
    for chunk in np.array_split(np.concatenate((np.tile(wave, 120), quiet)), 50):
        call.append(chunk.tobytes())
    response: dict[str, Any] = call.until("response.done")["response"]
    return response


class Others:
    """A caller who talks beside a fault. statuses: of the responses."""

    def __init__(self) -> None:
        self.statuses: list[str] = []
        self.error: BaseException | None = None

    def answered(self, more: int = 2) -> None:
        """Wait for further answers: all of them have to be complete."""
        wanted = len(self.statuses) + more
        until(lambda: self.error or len(self.statuses) >= wanted, "the other caller was not answered", 60.0)
        assert self.error is None, self.error
        assert set(self.statuses) == {"completed"}


@contextmanager
def talking(server: Server) -> Iterator[Others]:
    """Let another caller talk for the length of the block."""
    others, over = Others(), threading.Event()

    def talk() -> None:
        try:
            with Talk(server) as call:
                while not over.is_set():
                    others.statuses.append(ask(call, "It is fine.")["status"])
        except BaseException as error:
            others.error = error

    thread = threading.Thread(target=talk)
    thread.start()
    try:
        yield others
    finally:
        over.set()
        thread.join()
