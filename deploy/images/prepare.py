"""Writes the files that the models make out of their weights, so that the weights can be mounted read-only.

Those files are named after the modification times of the weights, in nanoseconds. Layers of images keep whole
seconds only, so the times are cut to seconds first. A language model is converted for both kinds of
processors, because an image runs on another machine than the one that builds it.
"""

import asyncio
import os

from rejoinder import open_models
from rejoinder.agent.config import load
from rejoinder.models.llm.ort.decoder_graph import prepared
from rejoinder.models.weights.fetch import cache_dir


async def prepare() -> None:
    """Convert all models, and open those of the image's profile once. Raises what ``open_models`` raises."""
    for path in cache_dir().rglob("*.*"):
        seconds = int(path.stat().st_mtime)
        os.utime(path, (seconds, seconds))
    for path in cache_dir().rglob("*.gguf"):
        for signed in (False, True):
            prepared(path, signed)
    settings, _ = load({})
    async with open_models(settings.specs()):
        pass


asyncio.run(prepare())
