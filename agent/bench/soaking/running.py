"""Runs a soak: the server in a process of its own, its callers, the samples, and a kill."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from rejoinder.agent.bench.soaking.people import SoakTarget, be_a_caller
from rejoinder.agent.bench.soaking.samples import Sampler, SoakJournal, SoakSample
from rejoinder.agent.bench.soaking.tally import SoakTally
from rejoinder.agent.bench.soaking.utterances import Utterance
from rejoinder.agent.server.own_server import free_port, own_process
from rejoinder.pipeline.errors import PipelineError

SAMPLE_SECONDS = 60.0
"""Interval between two samples, in seconds."""
LEAST_SOAK_SAMPLES = 30
"""Fewest samples of a run: a short one takes them more often."""
MICROPHONE_SECONDS = 0.02
"""Audio in one step of a caller's microphone, in seconds."""
REST_RANGE = (0.2, 3.0)
"""Rest of a caller between two calls, in seconds."""
SPARE_LINES = 2
"""Lines of the server beyond one for each caller. Conversations whose clients are gone take more than these,
so that they have to make way."""
BAD_SIGNS = ("Traceback (most recent call last)", "never retrieved", "never awaited", "was destroyed")
"""What no log of a server may contain."""

KILL_SHARE = 0.7
"""Share of the run before the kill: a trend shows in it, and the rest shows a recovery."""


@dataclass(frozen=True, slots=True)
class SoakPlan:
    """A soak: its length in seconds, the callers, whether the server is killed once, and a seed."""

    seconds: float
    callers: int
    kill: bool
    seed: int

    @property
    def every(self) -> float:
        """Seconds between two samples."""
        return min(SAMPLE_SECONDS, self.seconds / LEAST_SOAK_SAMPLES)


async def soak(
    plan: SoakPlan,
    flags: Mapping[str, str | None],
    said: Sequence[Utterance],
    journal: SoakJournal,
    log: Path,
    tell: Callable[[SoakSample], None],
) -> list[SoakSample]:
    """Soak a server and return the samples. Cancelling ends the callers and the server.

    flags: of ``rejoinder serve``. log: takes what the server writes. tell: takes each sample. Raises
    PipelineError if the server ends by itself.
    """
    http, audiosocket, wyoming = (free_port() for _ in range(3))
    target = SoakTarget(http, audiosocket, wyoming, said, MICROPHONE_SECONDS, REST_RANGE)
    tally, samples = SoakTally(), list[SoakSample]()
    loop = asyncio.get_running_loop()
    lengths = [plan.seconds]
    if plan.kill:
        lengths = [KILL_SHARE * plan.seconds, (1 - KILL_SHARE) * plan.seconds]
    began, callers = 0.0, list[asyncio.Task[None]]()
    try:
        for segment, length in enumerate(lengths):
            async with _server(plan, flags, target, log) as process:
                began = began or loop.time()
                until = loop.time() - began + length
                sampler = Sampler(process, target.port, segment)
                if not callers:
                    callers = [
                        asyncio.create_task(be_a_caller(number, target, tally, plan.seed), name="caller")
                        for number in range(plan.callers)
                    ]
                async for at in _ticks(began, until, plan.every):
                    _raise_failure(callers)
                    try:
                        samples.append(await sampler.take(at, tally))
                    except (OSError, TimeoutError) as error:
                        if not _is_running(process):
                            raise PipelineError(f"the server has ended after {at:.0f} s") from error
                        tally.counts["missed a sample"] += 1  # the machine is busy: the next one has it all
                        continue
                    journal.add(samples[-1])
                    tell(samples[-1])
                if segment + 1 < len(lengths):
                    await _kill(process)
    finally:
        for task in callers:
            task.cancel()
        await asyncio.gather(*callers, return_exceptions=True)
    return samples


async def _ticks(began: float, until: float, every: float) -> AsyncIterator[float]:
    """Yield the seconds since ``began`` at each sample, up to ``until``."""
    loop = asyncio.get_running_loop()
    while (now := loop.time() - began) + every / 2 < until:
        await asyncio.sleep(min(every, until - now))
        yield loop.time() - began


def _raise_failure(callers: Sequence[asyncio.Task[None]]) -> None:
    """Raise the error of a caller: a mistake of the bench, and not of the server."""
    for task in callers:
        if task.done():
            task.result()


async def _kill(process: int) -> None:
    """Kill a process by SIGKILL and wait until it is gone. Cancelling stops waiting."""
    os.kill(process, signal.SIGKILL)
    while _is_running(process):  # noqa: ASYNC110 - the end of a process has no event here
        await asyncio.sleep(0.05)


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@asynccontextmanager
async def _server(
    plan: SoakPlan, flags: Mapping[str, str | None], target: SoakTarget, log: Path
) -> AsyncIterator[int]:
    """Serve on the ports of the target for the length of the block, and yield the process's number."""
    environment = {
        "REJOINDER_MAX_SESSIONS": str(plan.callers + SPARE_LINES),
        "REJOINDER_AUDIOSOCKET_PORT": str(target.audiosocket),
        "REJOINDER_WYOMING_PORT": str(target.wyoming),
        "REJOINDER_METRICS": "true",
    }
    async with own_process(flags, None, environment, port=target.port, log=log) as (_, process):
        yield process


def bad_lines(log: Path) -> list[str]:
    """Return the lines of a server's log that no log may contain."""
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()
    return [line for line in lines if any(sign in line for sign in BAD_SIGNS)]
