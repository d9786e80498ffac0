"""``rejoinder bench soak``: a server under callers of all wires for hours, and what grows."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from rejoinder.agent.bench.process import check_proc
from rejoinder.agent.bench.reports.output import console_beside, leave, write
from rejoinder.agent.bench.soaking import verdict
from rejoinder.agent.bench.soaking.running import SoakPlan, bad_lines
from rejoinder.agent.bench.soaking.running import soak as run_soak
from rejoinder.agent.bench.soaking.samples import SoakJournal, SoakSample, read_journal
from rejoinder.agent.bench.soaking.utterances import utterances
from rejoinder.agent.bench.soaking.virtual import VirtualDay, soak_virtually
from rejoinder.agent.bench.soaking.virtual import failures as virtual_failures
from rejoinder.agent.bench.soaking.virtual import tables as virtual_tables
from rejoinder.agent.cli.options import (
    JsonOption,
    LlmOption,
    SeedOption,
    SpeechOption,
    SttOption,
    TtsOption,
    TurnOption,
)
from rejoinder.agent.config import load
from rejoinder.agent.machine import occasion
from rejoinder.pipeline.errors import PipelineError


def soak(
    hours: Annotated[float, typer.Option(min=0.005, help="length in hours")] = 1.0,
    callers: Annotated[int, typer.Option(min=1, max=200, help="callers at a time")] = 4,
    kill: Annotated[bool, typer.Option("--kill", help="kill -9 the server after 70 % of the run")] = False,
    virtual: Annotated[
        int, typer.Option(min=0, help="instead, soak for days of virtual time, with scripted models; 0: no")
    ] = 0,
    llm: LlmOption = None,
    stt: SttOption = None,
    tts: TtsOption = None,
    turn: TurnOption = None,
    speech: SpeechOption = None,
    seed: SeedOption = 0,
    out: Annotated[
        Path | None, typer.Option("--out", help="file of the samples; default: out/soak-DATE-TIME.jsonl")
    ] = None,
    read: Annotated[
        Path | None, typer.Option("--read", help="judge this file of samples, and run nothing")
    ] = None,
    json_file: JsonOption = None,
) -> None:
    """Run callers of all wires for hours, and fail if anything grows.

    Callers come, talk, interrupt, send garbage and vanish. Each minute the memory, descriptors, threads and
    tasks of the server and the latency are written to a file. Exits with 1 where one of them grows.
    ``--virtual 7`` takes some minutes: it looks at what the server holds at rest after each day of a week.
    """
    console = console_beside(json_file)
    flags = {"llm": llm, "stt": stt, "tts": tts, "turn": turn}
    try:
        if read:
            about, samples = read_journal(read)
            beside = read.with_suffix(".log")
            _judge(samples, about, bad_lines(beside) if beside.is_file() else [], console, json_file)
            return
        check_proc()
        if virtual:
            _virtually(virtual, callers, seed, console, json_file)
            return
        path = out or Path("out") / f"soak-{datetime.now():%Y%m%d-%H%M%S}.jsonl"
        plan = SoakPlan(3600.0 * hours, callers, kill, seed)
        about = {
            **occasion(),
            "models": flags,
            "hours": hours,
            "callers": callers,
            "kill": kill,
            "seed": seed,
            "samples_planned": plan.samples,
        }
        samples, log = _run(plan, flags, speech, path, about, console)
    except PipelineError as error:
        leave(error)
    console.print(f"samples: {path}, log of the server: {log}", markup=False, highlight=False, soft_wrap=True)
    _judge(samples, about, bad_lines(log), console, json_file)


def _virtually(days: int, callers: int, seed: int, console: Console, json_file: Path | None) -> None:
    began = time.perf_counter()
    logging.getLogger("rejoinder").setLevel(logging.ERROR)  # garbage of callers is no news here

    def tell(one: VirtualDay) -> None:
        passed = f"{time.perf_counter() - began:.0f} s: day {one.day + 1}"
        console.print(f"{passed}: {one.memory / 1e6:.1f} MB, {one.tasks} tasks", highlight=False)

    found = soak_virtually(days, callers, seed, tell)
    console.print(*virtual_tables(found), sep="\n\n")
    failed = virtual_failures(found)
    figures = {"wall_s": time.perf_counter() - began, "days": [asdict(one) for one in found]}
    write(json_file, {**occasion(), "callers": callers, "seed": seed, **figures, "failures": failed})
    if failed:
        leave(PipelineError("\n".join(failed)))


def _run(
    plan: SoakPlan,
    flags: dict[str, str | None],
    speech: Path | None,
    path: Path,
    about: dict[str, Any],
    console: Console,
) -> tuple[list[SoakSample], Path]:
    """Run the soak; return its samples and the server's log."""
    settings, _ = load({name: value for name, value in flags.items() if value is not None})
    journal, log = SoakJournal(path, about), path.with_suffix(".log")
    log.write_bytes(b"")

    async def main() -> list[SoakSample]:
        said = await utterances(speech, settings.tts, plan.seed)
        with progress_line(console, plan.seconds) as tell:
            return await run_soak(plan, flags, said, journal, log, tell)

    try:
        return asyncio.run(main()), log
    finally:
        journal.close()


@contextmanager
def progress_line(console: Console, seconds: float) -> Iterator[Callable[[SoakSample], None]]:
    """Show the last sample beside a bar during the block; yields what takes a sample."""
    columns = (BarColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
    with Progress(*columns, console=console, transient=True, refresh_per_second=1) as progress:
        task = progress.add_task("the callers come", total=seconds)

        def tell(one: SoakSample) -> None:
            p50 = "–" if one.p50_ms is None else f"{one.p50_ms:.0f} ms"
            shown = f"{one.memory / 1e6:.0f} MB, {one.descriptors} descriptors, {one.threads} threads"
            shown += f", {one.tasks} tasks, {one.calls} calls, {p50}"
            progress.update(task, completed=one.at, description=shown)
            if not console.is_terminal:
                console.print(f"{time.strftime('%H:%M:%S')} {one.at:.0f} s: {shown}", highlight=False)

        yield tell


def _judge(
    samples: list[SoakSample],
    about: dict[str, Any],
    bad: list[str],
    console: Console,
    json_file: Path | None,
) -> None:
    judged, planned = verdict.judge(samples), int(about.get("samples_planned", 0))
    console.print(*verdict.tables(samples, judged), sep="\n\n")
    failed = [*verdict.failures(samples, judged, planned), *(f"the log has: {line}" for line in bad[:10])]
    write(json_file, {**about, **verdict.report(samples, judged, planned), "failures": failed})
    if failed:
        leave(PipelineError("\n".join(failed)))
