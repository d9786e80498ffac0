"""Compares language models, each in a process of its own: answers, tool calls, speed, memory and download."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from multiprocessing import get_context
from typing import Any

from rich.filesize import decimal
from rich.table import Table

from rejoinder.agent.bench.answers.ask import NOW, ask, of_half
from rejoinder.agent.bench.answers.ask_tools import ToolScore, ask_tools, score_tools
from rejoinder.agent.bench.answers.questions import Half, read
from rejoinder.agent.bench.answers.report import Score, score
from rejoinder.agent.bench.answers.rules import Normalise
from rejoinder.agent.bench.answers.speed import CALLERS, Speed, measure
from rejoinder.agent.bench.answers.tool_rules import read_tools
from rejoinder.agent.bench.load import Level
from rejoinder.agent.bench.load import report as load_report
from rejoinder.agent.bench.process import NeedsLinux, check_proc, resident
from rejoinder.agent.bench.reports.waterfall import ms
from rejoinder.agent.bench.stt import normaliser
from rejoinder.agent.config import load
from rejoinder.models.loading import open_llm
from rejoinder.models.registry import weights
from rejoinder.models.specs import LANGUAGE_MODELS
from rejoinder.models.threads import quiet
from rejoinder.models.weights.catalog import catalog
from rejoinder.pipeline import Llm, Options, ToolLlm, Tools
from rejoinder.pipeline.errors import PipelineError


@dataclass(frozen=True, slots=True)
class Compared:
    """The measurements of one language model.

    download: bytes, None if it is not in the catalog. memory: bytes of the process after the measurement,
    None where the system does not say. load_s: seconds until the first token. tools: None if the model cannot
    call any. calls: of each number of callers, empty if they were not measured.
    """

    spec: str
    download: int | None
    memory: int | None
    load_s: float
    speed: Speed
    answers: Score
    tools: ToolScore | None
    calls: Sequence[Level] = ()


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
        tools = await _tools(llm, options, half, normalise) if isinstance(llm, ToolLlm) else None
        memory = _memory()
    every = score("all", answers, normalise)
    return Compared(settings.llm, known.size if known else None, memory, load_s, speed, every, tools)


async def _tools(llm: Llm, options: Options, half: Half, normalise: Normalise) -> ToolScore:
    functions, requests = read_tools()
    options = replace(options, tools=Tools(functions))
    return score_tools(
        [await ask_tools(llm, request, options) for request in of_half(requests, half)], normalise
    )


def _memory() -> int | None:
    try:
        check_proc()
    except NeedsLinux:
        return None
    return resident(os.getpid())


def tables(found: Sequence[Compared]) -> list[Table]:
    """Return three tables with a line for each model: what it says, how fast it writes, and calls with it."""
    shown = [_answers(found), _speed(found)]
    return [*shown, _calls(found)] if any(one.calls for one in found) else shown


def report(found: Sequence[Compared]) -> list[dict[str, Any]]:
    """Return the measurements of each model as JSON data."""
    return [
        {**asdict(replace(one, calls=())), "calls": load_report(one.calls)["levels"] if one.calls else []}
        for one in found
    ]


def _answers(found: Sequence[Compared]) -> Table:
    caption = (
        "tools: requests answered with the right call; needless: requests for none answered with one; "
        "speakable: without Markdown; longest: p95 of the speech, in seconds"
    )
    columns = ("download", "memory", "right", "tools", "needless", "speakable", "longest")
    shown = _table(caption, columns)
    for one in found:
        answers, tools = one.answers, one.tools
        shown.add_row(
            _name(one),
            "" if one.download is None else decimal(one.download),
            "" if one.memory is None else decimal(one.memory),
            _percent(answers.right, answers.asked),
            _percent(tools.right, tools.needed) if tools else "cannot",
            _percent(tools.needless, tools.unneeded) if tools else "",
            _percent(answers.spoken, answers.asked),
            f"{answers.speech_s.p95 or 0.0:.1f}",
        )
    return shown


def _speed(found: Sequence[Compared]) -> Table:
    caption = (
        "cold, warm, p95: ms to the first word, with nothing of the prompt read, or all but two words; "
        f"cut: p95 after another answer was cut off; four: tokens/s of the slowest of {CALLERS} at a time"
    )
    shown = _table(caption, ("cold", "warm", "p95", "cut", "tokens/s", "four"))
    for one in found:
        speed = one.speed
        waits = (speed.cold.p50, speed.warm.p50, speed.warm.p95, speed.cancelled.p95)
        shown.add_row(_name(one), *map(ms, waits), f"{speed.alone:.0f}", f"{speed.together:.0f}")
    return shown


def _calls(found: Sequence[Compared]) -> Table:
    caption = "planned last sample of speech to first audible sample, in ms, and turns answered"
    shown = _table(caption, ("callers", "p50", "p95", "answered"))
    for one in found:
        for level in one.calls:
            counted = level.counted
            waited, answered = counted.latency, f"{counted.answered} of {counted.clips}"
            shown.add_row(_name(one), str(level.sessions), ms(waited.p50), ms(waited.p95), answered)
    return shown


def _table(caption: str, columns: Sequence[str]) -> Table:
    shown = Table(box=None, caption=caption, caption_justify="left")
    for name in ("", *columns):
        shown.add_column(name, justify="right" if name else "left", no_wrap=True)
    return shown


def _name(one: Compared) -> str:
    names = {spec: name for name, spec in LANGUAGE_MODELS.items()}
    return names.get(one.spec) or one.spec.partition(":")[2]


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %"
