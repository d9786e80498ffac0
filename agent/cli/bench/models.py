"""``rejoinder bench models``: language models side by side."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from rejoinder.agent.bench.answers import models as compared_models
from rejoinder.agent.bench.answers.questions import Half
from rejoinder.agent.bench.reports.output import console_beside, leave, write
from rejoinder.agent.bench.stt import normaliser
from rejoinder.agent.cli.options import JsonOption, names_of
from rejoinder.agent.machine import occasion
from rejoinder.models.specs import LANGUAGE_MODELS
from rejoinder.pipeline.errors import PipelineError

MODELS = ",".join(LANGUAGE_MODELS)
"""The default of ``--llm``, with commas."""


def models(
    llm: Annotated[str, typer.Option(help="language models, comma-separated")] = MODELS,
    half: Annotated[Half, typer.Option(help="the half of the questions to ask")] = Half.REPORT,
    json_file: JsonOption = None,
) -> None:
    """Compare language models: right answers, speed and memory.

    Each model runs alone, without speech. First words are measured with nothing read before (cold), and with
    all but the last two words of the question read while the caller speaks (warm).
    """
    console = console_beside(json_file)
    try:
        normaliser()
        found, failed = [], []
        for name in names_of(llm, "language model", "--llm"):
            with console.status(f"measuring {name}"):
                result = compared_models.compare(name, half)
            if isinstance(result, str):
                failed.append(result)
                console.print(result, style="red", markup=False, highlight=False, soft_wrap=True)
            else:
                found.append(result)
        console.print(compared_models.table(found))
        write(json_file, {**occasion(), "half": half, "models": [asdict(one) for one in found]})
        if failed:
            raise PipelineError(f"{len(failed)} of {len(found) + len(failed)} models could not be measured")
    except PipelineError as error:
        leave(error)
