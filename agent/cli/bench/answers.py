"""``rejoinder bench answers``: how many everyday questions a language model answers right."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, replace
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console

from rejoinder.agent.bench.answers import report as answers_report
from rejoinder.agent.bench.answers.ask import NOW, ask, of_half
from rejoinder.agent.bench.answers.ask_tools import (
    as_tool_json,
    ask_tools,
    tool_table,
    wrong_calls,
)
from rejoinder.agent.bench.answers.questions import Half, read
from rejoinder.agent.bench.answers.tool_rules import read_tools
from rejoinder.agent.bench.reports.output import console_beside, leave, progress_bar, write
from rejoinder.agent.bench.stt import normaliser
from rejoinder.agent.cli.options import InstructionsOption, JsonOption, LlmOption, ProfileOption
from rejoinder.agent.config import Settings, load
from rejoinder.agent.machine import occasion
from rejoinder.models.loading import open_llm
from rejoinder.pipeline import Llm, Options, Tools
from rejoinder.pipeline.errors import PipelineError

Asking = TypeVar("Asking")
Answer = TypeVar("Answer")


def answers(
    llm: LlmOption = None,
    half: Annotated[Half, typer.Option(help="the half of the questions to ask")] = Half.BOTH,
    times: Annotated[int, typer.Option(min=1, help="times to ask each question")] = 1,
    tools: Annotated[bool, typer.Option("--tools", help="ask for tool calls instead")] = False,
    instructions: InstructionsOption = None,
    profile: ProfileOption = None,
    json_file: JsonOption = None,
) -> None:
    """Count the everyday questions that a model answers right.

    The model reads the prompt of a call: the instructions, and the turns before. Rules decide whether an
    answer is right (agent/bench/answers/questions.toml). Nothing is spoken or recognised. With --tools the
    requests need one of eight tools or none (agent/bench/answers/tools.toml).
    """
    console = console_beside(json_file)
    try:
        normalise = normaliser()
        settings, _ = load({"llm": llm, "instructions": instructions, "profile": profile})
        report: dict[str, Any] = {**occasion(), "model": settings.llm, "half": half}
        options = settings.options(NOW)
        if tools:
            functions, requests = read_tools()
            options = replace(options, tools=Tools(functions))
            wanted = of_half(requests, half) * times
            called = asyncio.run(_ask_all(ask_tools, settings, options, wanted, console))
        else:
            found = asyncio.run(_ask_all(ask, settings, options, of_half(read(), half) * times, console))
    except PipelineError as error:
        leave(error)
    if tools:
        for line in wrong_calls(called, normalise):
            console.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)
        console.print(tool_table(settings.llm, called, normalise))
        write(json_file, {**report, "answers": as_tool_json(called, normalise)})
        return
    rows = answers_report.rows(found, normalise)
    for line in answers_report.wrong(found, normalise):
        console.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)
    console.print(answers_report.table(settings.llm, rows))
    report["rows"] = [asdict(row) for row in rows]
    write(json_file, {**report, "answers": answers_report.as_json(found, normalise)})


async def _ask_all(
    ask_one: Callable[[Llm, Asking, Options], Awaitable[Answer]],
    settings: Settings,
    options: Options,
    questions: Sequence[Asking],
    console: Console,
) -> list[Answer]:
    found = []
    async with open_llm(settings.llm, settings.threads(), settings.placement()) as llm:
        with progress_bar(console) as progress:
            task = progress.add_task("asking", total=len(questions))
            for question in questions:
                found.append(await ask_one(llm, question, options))
                progress.advance(task)
    return found
