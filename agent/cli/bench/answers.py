"""``rejoinder bench answers``: how many everyday questions a language model answers right."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console

from rejoinder.agent.bench.answers import report as answers_report
from rejoinder.agent.bench.answers.ask import NOW, Asked, ask, of_half
from rejoinder.agent.bench.answers.questions import Half, Question, read
from rejoinder.agent.bench.reports.output import console_beside, leave, progress_bar, write
from rejoinder.agent.bench.stt import normaliser
from rejoinder.agent.cli.options import InstructionsOption, JsonOption, LlmOption, ProfileOption
from rejoinder.agent.config import Settings, load
from rejoinder.agent.machine import occasion
from rejoinder.models.loading import open_llm
from rejoinder.pipeline.errors import PipelineError


def answers(
    llm: LlmOption = None,
    half: Annotated[Half, typer.Option(help="the half of the questions to ask")] = Half.BOTH,
    times: Annotated[int, typer.Option(min=1, help="times to ask each question")] = 1,
    instructions: InstructionsOption = None,
    profile: ProfileOption = None,
    json_file: JsonOption = None,
) -> None:
    """Count the everyday questions that a model answers right.

    The model reads the prompt of a call: the instructions, and the turns before. Rules decide whether an
    answer is right (agent/bench/answers/questions.toml). Nothing is spoken or recognised.
    """
    console = console_beside(json_file)
    try:
        normalise = normaliser()
        settings, _ = load({"llm": llm, "instructions": instructions, "profile": profile})
        report: dict[str, Any] = {**occasion(), "model": settings.llm, "half": half}
        found = asyncio.run(_ask_all(settings, of_half(read(), half) * times, console))
    except PipelineError as error:
        leave(error)
    rows = answers_report.rows(found, normalise)
    for line in answers_report.wrong(found, normalise):
        console.print(line, style="dim", markup=False, highlight=False, soft_wrap=True)
    console.print(answers_report.table(settings.llm, rows))
    report["rows"] = [asdict(row) for row in rows]
    write(json_file, {**report, "answers": answers_report.as_json(found, normalise)})


async def _ask_all(settings: Settings, questions: Sequence[Question], console: Console) -> list[Asked]:
    found = []
    async with open_llm(settings.llm, settings.threads(), settings.placement()) as llm:
        with progress_bar(console) as progress:
            task = progress.add_task("asking", total=len(questions))
            for question in questions:
                found.append(await ask(llm, question, settings.options(NOW)))
                progress.advance(task)
    return found
