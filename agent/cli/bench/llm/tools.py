"""``rejoinder bench tools``: whether a language model calls the right tools for spoken requests."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console

from rejoinder.agent.bench import tools as bench_tools
from rejoinder.agent.bench.cases.tool_requests import REQUESTS
from rejoinder.agent.bench.reports.output import console_beside, leave, progress_bar, write
from rejoinder.agent.cli.options import JsonOption, TtsOption, WhisperOption
from rejoinder.agent.config import load
from rejoinder.agent.machine import occasion
from rejoinder.models.loading import Specs, open_models
from rejoinder.pipeline import ModelError, ToolLlm
from rejoinder.pipeline.errors import PipelineError


def tools(
    llm: Annotated[str, typer.Option(help="llama:PATH, vllm:FOLDER|NAME or openai:http://HOST/v1#MODEL")],
    stt: WhisperOption = "whisper:tiny.en",
    tts: TtsOption = None,
    json_file: JsonOption = None,
) -> None:
    """Measure how often a language model calls the right tool.

    Twenty requests are spoken by the voice and recognised; four of them need no tool.
    """
    console = console_beside(json_file)
    voice = tts or load({})[0].tts
    try:
        answers = asyncio.run(_ask(Specs(turn="", stt=stt, llm=llm, tts=voice), console))
    except PipelineError as error:
        leave(error)
    console.print(bench_tools.table(llm, answers))
    report: dict[str, Any] = {**occasion(), "model": llm, "answers": [asdict(answer) for answer in answers]}
    right = {"requests": len(answers), "right": sum(answer.right for answer in answers)}
    write(json_file, {**report, **right, "right_tool": sum(answer.right_tool for answer in answers)})


async def _ask(specs: Specs, console: Console) -> list[bench_tools.ToolAnswer]:
    async with open_models(specs) as models:
        if not isinstance(models.llm, ToolLlm):
            raise ModelError(specs.llm, "this model cannot call tools: its chat template has none")
        with progress_bar(console) as progress:
            task = progress.add_task("asking", total=len(REQUESTS))
            answers = []
            for request in REQUESTS:
                heard = await bench_tools.spoken(request, models.tts, models.stt)
                answers.append(await bench_tools.answer(request, heard, models.llm))
                progress.advance(task)
            return answers
