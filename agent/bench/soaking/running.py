"""Runs a soak: the server in a process of its own, its callers, the samples, and a kill."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from rejoinder.agent.bench.process import is_running
from rejoinder.agent.bench.soaking.people import SoakTarget, be_a_caller
from rejoinder.agent.bench.soaking.samples import Sampler, SoakJournal, SoakSample
from rejoinder.agent.bench.soaking.tally import SoakTally
from rejoinder.agent.bench.soaking.utterances import Utterance
from rejoinder.agent.server.own_server import held_port, own_process
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

    @property
    def samples(self) -> int:
        """The number of samples of a whole run. A kill costs some: the server starts again."""
        return int(self.seconds / self.every)


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
    with held_port() as http, held_port() as audiosocket, held_port() as wyoming:
        target = SoakTarget(http, audiosocket, wyoming, said, MICROPHONE_SECONDS, REST_RANGE)
        callers, samples = _Callers(plan, target), list[SoakSample]()
        lengths = [KILL_SHARE, 1 - KILL_SHARE] if plan.kill else [1.0]
        began = 0.0
        try:
            for segment, share in enumerate(lengths):
                async with _server(plan, flags, target, log) as process:
                    began = began or asyncio.get_running_loop().time()
                    callers.begin()
                    sampler = Sampler(process, target.port, segment)
                    async for sample in _samples(plan, sampler, callers, began, share * plan.seconds):
                        samples.append(sample)
                        journal.add(sample)
                        tell(sample)
                    if segment + 1 < len(lengths):
                        await _kill(process)
        finally:
            await callers.end()
    return samples


class _Callers:
    """The callers of a soak, who stay while the server is killed and starts again."""

    def __init__(self, plan: SoakPlan, target: SoakTarget) -> None:
        self.tally = SoakTally()
        self._plan, self._target = plan, target
        self._tasks: list[asyncio.Task[None]] = []

    def begin(self) -> None:
        """Let them call, unless they do already."""
        self._tasks = self._tasks or [
            asyncio.create_task(be_a_caller(number, self._target, self.tally, self._plan.seed), name="caller")
            for number in range(self._plan.callers)
        ]

    def check(self) -> None:
        """Raise the error of a caller: a mistake of the bench, and not of the server."""
        for task in self._tasks:
            if task.done():
                task.result()

    async def end(self) -> None:
        """Let all of them vanish. Cancelling stops waiting for them."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _samples(
    plan: SoakPlan, sampler: Sampler, callers: _Callers, began: float, seconds: float
) -> AsyncIterator[SoakSample]:
    """Yield the samples of the next ``seconds``. Raises PipelineError if the server ends by itself."""
    until = asyncio.get_running_loop().time() - began + seconds
    async for at in _ticks(began, until, plan.every):
        callers.check()
        try:
            sample = await sampler.take(at, callers.tally)
        except (OSError, TimeoutError) as error:
            if not is_running(sampler.process):
                raise PipelineError(f"the server has ended after {at:.0f} s") from error
            callers.tally.counts["missed a sample"] += 1  # the machine is busy: the next one has it all
            continue
        yield sample


async def _ticks(began: float, until: float, every: float) -> AsyncIterator[float]:
    """Yield the seconds since ``began`` at each sample, up to ``until``."""
    loop = asyncio.get_running_loop()
    while (now := loop.time() - began) + every / 2 < until:
        await asyncio.sleep(min(every, until - now))
        yield loop.time() - began


async def _kill(process: int) -> None:
    """Kill a process by SIGKILL and wait until the loop has its exit status. Cancelling stops waiting."""
    os.kill(process, signal.SIGKILL)
    while Path(f"/proc/{process}").exists():  # noqa: ASYNC110, ASYNC240 - its end has no event here
        await asyncio.sleep(0.05)


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
