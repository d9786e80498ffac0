"""``rejoinder bench cache``: which questions share an answer, and the time that saves."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import aclosing
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from rejoinder.agent.bench.caching.judging import HalfResult, judge_half, strangers
from rejoinder.agent.bench.caching.live import LIVE_QUESTIONS, LiveAnswer, live, lookups
from rejoinder.agent.bench.reports.output import console_beside, leave, progress_bar, write
from rejoinder.agent.bench.reports.waterfall import summarise, summary_table
from rejoinder.agent.cli.options import JsonOption, LlmOption, SttOption, TtsOption
from rejoinder.agent.config import Settings, load
from rejoinder.agent.machine import occasion
from rejoinder.models.caching.opening import open_store
from rejoinder.models.caching.store import CacheLimits
from rejoinder.models.loading import open_models
from rejoinder.pipeline.errors import ModelError, PipelineError

ENTRIES = 1_000
"""Answers in the store whose lookups are timed."""
LOOKUPS = 400
"""Lookups that are timed."""


def cache(
    calls: Annotated[int, typer.Option(min=0, max=100, help="rounds of live calls; 0: none")] = 1,
    redis: Annotated[str, typer.Option(help="URL of a Redis server whose cache is EMPTIED and timed")] = "",
    llm: LlmOption = None,
    stt: SttOption = None,
    tts: TtsOption = None,
    json_file: JsonOption = None,
) -> None:
    """Measure which questions share an answer, and the time saved.

    The rules of the cache were written on one half of the sets of questions, and are judged on the other. In
    the live calls, the voice asks a question twice, in other words. Lookups are timed, too.
    """
    console = console_beside(json_file)
    halves = {"fit": judge_half(0), "judged": judge_half(1)}
    console.print(_sets(halves))
    found, pairs = strangers()
    console.print(f"unrelated questions of one meaning: {found} of {pairs} pairs", style="dim")
    try:
        settings = load({"llm": llm, "stt": stt, "tts": tts})[0]
        times, answers = asyncio.run(_measure(settings, calls, redis, console))
    except PipelineError as error:
        leave(error)
    lookup_times = {name: summarise(each) for name, each in times.items()}
    for name, took in lookup_times.items():
        console.print(
            f"{name}, {ENTRIES} answers: a lookup takes "
            f"{took.p50:.2f} ms (p50), {took.p95:.2f} ms (p95), {took.p99:.2f} ms (p99)"
        )
    if answers:
        console.print(_live(answers))
    report: dict[str, Any] = {
        **occasion(),
        "sets": {name: asdict(half) for name, half in halves.items()},
        "strangers": {"same": found, "pairs": pairs},
        "lookups_ms": {name: asdict(took) for name, took in lookup_times.items()},
        "calls": [[asdict(first), asdict(second)] for first, second in answers],
    }
    write(json_file, report)


async def _measure(
    settings: Settings, rounds: int, redis: str, console: Console
) -> tuple[dict[str, list[float]], list[tuple[LiveAnswer, LiveAnswer]]]:
    with tempfile.TemporaryDirectory() as folder:
        times = {"SQLite": await _timed(f"sqlite:{Path(folder) / 'answers.db'}")}
    if redis:
        times["Redis"] = await _timed(redis)
    if not rounds:
        return times, []
    answers: list[tuple[LiveAnswer, LiveAnswer]] = []
    async with open_models(settings.specs(), settings.threads()) as models:
        with progress_bar(console) as progress:
            task = progress.add_task("calling", total=2 * rounds * len(LIVE_QUESTIONS))
            for _ in range(rounds):
                answers += await live(
                    models, settings.options(), LIVE_QUESTIONS, lambda: progress.advance(task)
                )
    return times, answers


async def _timed(url: str) -> list[float]:
    """Return the times of lookups in a store. Raises ModelError if it cannot be used."""
    async with aclosing(open_store(url, CacheLimits())) as store:
        try:
            return await lookups(store, ENTRIES, LOOKUPS)
        except PipelineError:
            raise
        except Exception as error:  # those of redis-py, whose messages have no password
            raise ModelError("cache", f"the store failed: {error}") from error


def _sets(halves: dict[str, HalfResult]) -> Table:
    columns = ("half", "paraphrases: hits", "exact", "contrasts: false hits")
    table = Table(*columns, title="Which questions share an answer", box=None)
    for name, half in halves.items():
        false = ", ".join(f"{kind} {count}" for kind, count in half.false.items())
        table.add_row(
            name,
            f"{half.hits} of {half.paraphrases} ({half.hits / half.paraphrases:.0%})",
            str(half.exact),
            f"{sum(half.false.values())} of {half.contrasts} {false}",
        )
    return table


def _live(answers: list[tuple[LiveAnswer, LiveAnswer]]) -> Table:
    misses = [first for first, _ in answers if first.match == "cache_miss"]
    hits = [second for _, second in answers if second.match in ("cache_exact", "cache_similar")]
    saved = [
        first.speech_ms - second.speech_ms for first, second in answers if first in misses and second in hits
    ]
    rows = []
    for name, chosen in (("miss", misses), ("hit", hits)):
        rows += [
            (
                f"{name}: from the decided end",
                [str(len(chosen))],
                summarise([one.decided_ms for one in chosen]),
            ),
            (
                f"{name}: from the last speech",
                [str(len(chosen))],
                summarise([one.speech_ms for one in chosen]),
            ),
        ]
    rows.append(("saved", [str(len(saved))], summarise(saved)))
    return summary_table("First audio of live calls, in ms", ("answers",), rows)
