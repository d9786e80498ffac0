"""Compares language models: right answers, speed, memory and download, each in a process of its own."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

from rich.filesize import decimal
from rich.table import Table

from rejoinder.agent.bench.answers.ask import NOW, ask, of_half
from rejoinder.agent.bench.answers.questions import Half, read
from rejoinder.agent.bench.answers.report import Score, score
from rejoinder.agent.bench.answers.speed import CALLERS, Speed, measure
from rejoinder.agent.bench.reports.waterfall import ms
from rejoinder.agent.bench.soak import NeedsLinux, check_proc, resident
from rejoinder.agent.bench.stt import normaliser
from rejoinder.agent.config import load
from rejoinder.models.loading import open_llm
from rejoinder.models.specs import weights
from rejoinder.models.threads import quiet
from rejoinder.models.weights.catalog import catalog
from rejoinder.pipeline.errors import PipelineError


@dataclass(frozen=True, slots=True)
class Compared:
    """The measurements of one language model.

    download: bytes, None if it is not in the catalog. memory: bytes of the process after the measurement,
    None where the system does not say. load_s: seconds until the first token.
    """

    spec: str
    download: int | None
    memory: int | None
    load_s: float
    speed: Speed
    answers: Score


def compare(spec: str, half: Half) -> Compared | str:
    """Measure one language model in a new process. Return the reason if that fails."""
    # A library that ends its process takes only the child along, and the memory is that of one model.
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        try:
            return pool.submit(_compare, spec, half).result()
        except Exception as error:  # the child ended, or its result could not be sent
            return f"{spec}: {type(error).__name__}: {error}"


def _compare(spec: str, half: Half) -> Compared | str:
    quiet()
    try:
        return asyncio.run(_measured(spec, half))
    except PipelineError as error:
        return str(error)


async def _measured(spec: str, half: Half) -> Compared:
    settings, _ = load({"llm": spec})
    options, normalise = settings.options(NOW), normaliser()
    known = catalog().get(weights(settings.llm) or "")
    began = time.perf_counter()
    async with open_llm(settings.llm, settings.threads(), settings.placement()) as llm:
        load_s = time.perf_counter() - began
        speed = await measure(llm, options.instructions)
        answers = [await ask(llm, question, options) for question in of_half(read(), half)]
        memory = _memory()
    every = score("all", answers, normalise)
    return Compared(settings.llm, known.size if known else None, memory, load_s, speed, every)


def _memory() -> int | None:
    try:
        check_proc()
    except NeedsLinux:
        return None
    return resident(os.getpid())


def table(found: Sequence[Compared]) -> Table:
    """Return a table with one line per model."""
    columns = (
        "",
        "download",
        "memory",
        "right",
        "speakable",
        "cold",
        "warm",
        "p95",
        "cut",
        "tokens/s",
        "four",
    )
    caption = (
        "cold, warm, p95: ms to the first word, with nothing of the prompt read, or all but two words; "
        f"cut: p95 after another answer was cut off; four: tokens/s of the slowest of {CALLERS} at a time"
    )
    shown = Table(box=None, caption=caption, caption_justify="left")
    for name in columns:
        shown.add_column(name, justify="right" if name else "left", no_wrap=True)
    for one in found:
        shown.add_row(
            one.spec.partition(":")[2] or one.spec,
            "" if one.download is None else decimal(one.download),
            "" if one.memory is None else decimal(one.memory),
            f"{100 * one.answers.right / one.answers.asked:.0f} %",
            f"{100 * one.answers.spoken / one.answers.asked:.0f} %",
            ms(one.speed.cold.p50),
            ms(one.speed.warm.p50),
            ms(one.speed.warm.p95),
            ms(one.speed.cancelled.p95),
            f"{one.speed.alone:.0f}",
            f"{one.speed.together:.0f}",
        )
    return shown
