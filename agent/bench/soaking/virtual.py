"""A soak in virtual time: the server and its callers in one process, with scripted models and real sockets.

Calls take virtual seconds, and the hours between them take none. At the end of each virtual day all callers
leave. When the conversations of those that vanished have ended, the process is at rest, and whatever it still
holds has no reason to be more than on the day before.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from rich.console import RenderableType
from rich.table import Table

from rejoinder.agent.bench.process import descriptors, resident
from rejoinder.agent.bench.soaking.people import SoakTarget, be_a_caller
from rejoinder.agent.bench.soaking.registries import registries
from rejoinder.agent.bench.soaking.running import SPARE_LINES
from rejoinder.agent.bench.soaking.tally import SoakTally
from rejoinder.agent.bench.soaking.trends import LEAST_SAMPLES, Trend, trend
from rejoinder.agent.bench.soaking.utterances import synthesised
from rejoinder.agent.config import Settings
from rejoinder.agent.server.own_server import held_port
from rejoinder.agent.server.server import Server
from rejoinder.agent.server.serving import listen, web
from rejoinder.agent.server.uvicorn_server import Uvicorn
from rejoinder.agent.simulate import virtual_clock
from rejoinder.pipeline.errors import PipelineError

VIRTUAL_DAY_SECONDS = 86_400.0
"""Length of a virtual day, in seconds."""
VIRTUAL_FRAME_SECONDS = 0.1
"""Audio in one step of a microphone, in seconds: fewer messages than on a real line."""
VIRTUAL_REST = (60.0, 1_200.0)
"""Range of the rest between two calls of a caller, in virtual seconds."""
SETTLING_SECONDS = 120.0
"""Rest at the end of a day, in virtual seconds: more than ``resume_s`` and any wait of a wire."""
WARM_DAYS = 1
"""Days at the beginning that do not count."""
SCRIPTED_MODELS = {
    "vad": "scripted:vad",
    "turn": "scripted:turn",
    "stt": "scripted:stt|what is the weather|and in Paris?|thank you",
    "llm": "scripted:llm|It is sunny today. Take a hat, if you go out.|You are welcome.",
    "tts": "scripted:tts",
}
"""The models of a virtual soak."""
SIZES_AT_REST = ("memory", "blocks", "objects")
"""What may grow by ``MOST_GROWTH`` a day: resident bytes, blocks of Python's allocator, tracked objects."""
COUNTS_AT_REST = ("tasks", "descriptors", "threads")
"""What may not grow."""


@dataclass(frozen=True, slots=True)
class VirtualDay:
    """The process at rest after a virtual day.

    memory: resident bytes. blocks: of Python's allocator. objects: that the garbage collector tracks. held:
    sizes of the server's containers, by the attributes that lead to them. happened: counts of the callers.
    """

    day: int
    memory: int
    blocks: int
    objects: int
    tasks: int
    descriptors: int
    threads: int
    held: dict[str, int] = field(default_factory=dict)
    happened: dict[str, int] = field(default_factory=dict)
    wires: dict[str, int] = field(default_factory=dict)
    lost: dict[str, int] = field(default_factory=dict)


def soak_virtually(
    days: int, callers: int, seed: int, tell: Callable[[VirtualDay], None], day_s: float = VIRTUAL_DAY_SECONDS
) -> list[VirtualDay]:
    """Soak a server for virtual days and return a sample of each. day_s: length of a day, in virtual seconds.

    tell: takes each day. Raises PipelineError if the server does not start.
    """
    return virtual_clock.run(_days(days, callers, seed, tell, day_s))


async def _days(
    days: int, callers: int, seed: int, tell: Callable[[VirtualDay], None], day_s: float
) -> list[VirtualDay]:
    samples = list[VirtualDay]()
    async with _serving(callers) as (program, target):
        for day in range(days):
            tally = SoakTally()
            tasks = [
                asyncio.create_task(be_a_caller(number, target, tally, seed + day), name="caller")
                for number in range(callers)
            ]
            done, _ = await asyncio.wait(tasks, timeout=day_s - SETTLING_SECONDS)
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            for task in done:
                task.result()  # a mistake of the bench, and not of the server
            await asyncio.sleep(SETTLING_SECONDS)
            samples.append(look(day, program, tally))
            tell(samples[-1])
    return samples


@asynccontextmanager
async def _serving(callers: int) -> AsyncIterator[tuple[Server, SoakTarget]]:
    """Serve in this process and loop for the length of the block. Raises PipelineError."""
    with held_port() as audiosocket, held_port() as wyoming:
        async with _serving_on(callers, audiosocket, wyoming) as served:
            yield served


@asynccontextmanager
async def _serving_on(
    callers: int, audiosocket: int, wyoming: int
) -> AsyncIterator[tuple[Server, SoakTarget]]:
    http = listen("127.0.0.1", 0)
    given = {
        "max_sessions": callers + SPARE_LINES,
        "audiosocket_port": audiosocket,
        "wyoming_port": wyoming,
        "metrics": True,
        "api_keys": "",
        "greeting": "Hello. How can I help you?",
        "log_level": "error",
        **SCRIPTED_MODELS,
    }
    errors = list[Exception]()
    program = Server(Settings.model_validate(given), lambda model, seconds: None, errors.append)
    server = Uvicorn(web(program), program.end_streams, program.drain)
    running = asyncio.create_task(server.serve(sockets=[http]), name="server")
    try:
        while program.models is None:
            if errors:
                raise PipelineError(f"the server did not start: {errors[0]}") from errors[0]
            await asyncio.sleep(0.1)
        said = await synthesised(SCRIPTED_MODELS["tts"])
        port = http.getsockname()[1]
        yield program, SoakTarget(port, audiosocket, wyoming, said, VIRTUAL_FRAME_SECONDS, VIRTUAL_REST)
    finally:
        server.should_exit = True
        await running


def look(day: int, program: Server, tally: SoakTally) -> VirtualDay:
    """Return the state of this process, in which the program is at rest."""
    gc.collect()
    own = os.getpid()
    taken = tally.taken()
    return VirtualDay(
        day,
        resident(own),
        sys.getallocatedblocks(),
        len(gc.get_objects()),
        len(asyncio.all_tasks()),
        descriptors(own),
        threading.active_count(),
        registries(program),
        dict(taken.counts),
        dict(taken.wires),
        dict(taken.lost),
    )


def trends(days: Sequence[VirtualDay]) -> dict[str, tuple[Trend | None, bool]]:
    """Return the growth a day of each quantity and container, and whether it fails."""
    warm = days[WARM_DAYS:]
    at = [float(one.day) for one in warm]
    found: dict[str, tuple[Trend | None, bool]] = {}
    for name in (*SIZES_AT_REST, *COUNTS_AT_REST):
        grown = trend(at, [float(getattr(one, name)) for one in warm])
        fails = grown is not None and (
            grown.grows_by_share() if name in SIZES_AT_REST else grown.grows_by_units()
        )
        found[name] = grown, fails
    for name in sorted({name for one in warm for name in one.held}):
        grown = trend(at, [float(one.held.get(name, 0)) for one in warm])
        if grown is not None and grown.grows_by_units():
            found[name] = grown, True
    return found


def tables(days: Sequence[VirtualDay]) -> list[RenderableType]:
    """Return the tables for the terminal: the days, their trends, and what the callers did."""
    shown = Table(title="At rest after each virtual day", title_justify="left", title_style="bold", box=None)
    for name in ("day", "MB", "blocks", "objects", "tasks", "fds", "threads", "held", "calls", "answered"):
        shown.add_column(name, justify="right", no_wrap=True)
    for one in days:
        figures = (one.blocks, one.objects, one.tasks, one.descriptors, one.threads, sum(one.held.values()))
        answered = f"{one.happened.get('answered', 0)} of {one.happened.get('asked', 0)}"
        calls = sum(one.wires.values())
        shown.add_row(str(one.day + 1), f"{one.memory / 1e6:.1f}", *map(str, figures), str(calls), answered)
    growth = Table(title="Growth a day", title_justify="left", title_style="bold", box=None)
    for name in ("", "mean", "slope", "error", "%", ""):
        growth.add_column(name, justify="right" if name else "left", no_wrap=True)
    for name, (grown, fails) in trends(days).items():
        if grown is None:
            growth.add_row(name, "–", "–", "–", "–", "too few days")
            continue
        figures_ = (f"{value:.2f}" for value in (grown.mean, grown.slope, grown.error))
        verdict = "[bold red]grows[/]" if fails else "steady"
        growth.add_row(name, *figures_, f"{100 * grown.share:+.3f}", verdict)
    return [shown, growth, happenings(days)]


def happenings(days: Sequence[VirtualDay]) -> Table:
    """Return the table of what the callers did."""
    shown = Table(title="The callers", title_justify="left", title_style="bold", box=None, show_header=False)
    for title, name in (("calls", "wires"), ("what happened", "happened"), ("lost", "lost")):
        summed = Counter[str]()
        for one in days:
            summed.update(getattr(one, name))
        shown.add_row(title, ", ".join(f"{key}: {count}" for key, count in summed.most_common(24)))
    return shown


def failures(days: Sequence[VirtualDay]) -> list[str]:
    """Return what fails a virtual soak, in words."""
    found = [
        f"{name} grows by {grown.slope:.2f} ± {grown.error:.2f} a day ({100 * grown.share:+.2f} %)"
        for name, (grown, fails) in trends(days).items()
        if fails and grown
    ]
    found += [
        f"{name} cannot be judged: run {WARM_DAYS + LEAST_SAMPLES} days or more"
        for name, (grown, _) in trends(days).items()
        if grown is None
    ]
    found += [
        f"no turn was answered on day {one.day + 1}" for one in days if not one.happened.get("answered")
    ]
    return found
