"""Writes the files that the models make out of their weights, so that the weights can be mounted read-only.

Those files are named after the modification times of the weights, in nanoseconds. Layers of images keep whole
seconds only, so the times are cut to seconds first.
"""

import asyncio
import os

from rejoinder import Specs, open_models
from rejoinder.models.weights.fetch import cache_dir


async def prepare() -> None:
    """Open the default models once. Raises what ``open_models`` raises."""
    for path in cache_dir().rglob("*.*"):
        seconds = int(path.stat().st_mtime)
        os.utime(path, (seconds, seconds))
    async with open_models(Specs()):
        pass


asyncio.run(prepare())
