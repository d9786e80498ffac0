"""``rejoinder deploy``: put models into a Ray cluster, where call servers share them."""

from __future__ import annotations

import time
from typing import Annotated

import typer

SpecsArgument = Annotated[
    list[str], typer.Argument(metavar="MODEL...", help="whisper:tiny.en, smart-turn, piper:VOICE ...")
]


def deploy(
    models: SpecsArgument,
    replicas: Annotated[int, typer.Option(min=1, help="processes for each model")] = 1,
    most: Annotated[int, typer.Option(min=1, help="most processes; more start where requests wait")] = 1,
    cores: Annotated[int, typer.Option(min=1, help="cores for each process")] = 1,
    gpus: Annotated[float, typer.Option(min=0, help="GPUs, or a part of one, for each process")] = 0.0,
    remove: Annotated[bool, typer.Option("--remove", help="take the models out of the cluster")] = False,
) -> None:
    """Put models into a Ray cluster, where several servers share them.

    A server uses one with --stt ray:MODEL, --turn ray:MODEL or --tts ray:MODEL.
    """
    from rejoinder.agent.bench.reports.output import leave
    from rejoinder.models.ray.deploying import Scale
    from rejoinder.models.ray.deploying import deploy as put
    from rejoinder.models.ray.deploying import remove as take_out
    from rejoinder.pipeline.errors import PipelineError

    scale = Scale(replicas, max(replicas, most), cores, gpus)
    try:
        for model in models:
            began = time.perf_counter()
            if remove:
                take_out(model)
            else:
                put(model, scale)
            done = "removed" if remove else f"deployed in {time.perf_counter() - began:.1f} s"
            typer.echo(f"{model}: {done}")
    except PipelineError as error:
        leave(error)
